"""``gpufence completion``: completion scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

VARIABLE = "_GPUFENCE_COMPLETE"
"""The environment variable with which click's scripts request completions."""


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
    """Print a shell completion script.

    Bash must be 4.4 or newer. In zsh, compinit must be loaded.
    """
    script = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(script(ctx.find_root().command, {}, "gpufence", VARIABLE).source())
