"""``gpufence completion``: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import click

VARIABLE = "_GPUFENCE_COMPLETE"
"""The variable in which click's scripts ask for completions."""


@click.command(
    epilog="""\b
Examples:
  gpufence completion bash > ~/.local/share/bash-completion/completions/gpufence
  gpufence completion zsh > "${fpath[1]}/_gpufence"
  gpufence completion fish > ~/.config/fish/completions/gpufence.fish
  source <(gpufence completion bash)                    for this shell only
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes gpufence in a shell.

    Bash has to be 4.4 or newer. In zsh, compinit has to be loaded.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    script = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(script(ctx.find_root().command, {}, "gpufence", VARIABLE).source())
