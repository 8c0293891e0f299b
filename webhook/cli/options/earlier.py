"""Options of gpufence 0.1 that were renamed or removed."""

from __future__ import annotations

import click

_REPLACEMENTS = {
    "--authority-lifetime": "use --ca-lifetime",
    "--authority-overlap": "use --ca-overlap",
    "--authority-settle": "use --ca-propagation-delay",
    "--client-authority": "use --client-ca-file",
    "--estate-metrics": "use --device-metrics",
    "--leaf-lifetime": "use --certificate-lifetime",
    "--no-estate-metrics": "use --no-device-metrics",
    "--workers": "run more replicas",
}


class EarlierOptions(click.Command):
    """A command that says what replaces an option of an earlier version."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            replacement = _REPLACEMENTS.get(error.option_name)
            if replacement is None:
                raise
            ctx.fail(f"The option {error.option_name} was removed in gpufence 0.2; {replacement}.")
