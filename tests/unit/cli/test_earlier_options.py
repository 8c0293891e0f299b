"""What a command says to an option of gpufence 0.1."""

from __future__ import annotations

import pytest

from paths import PROJECT
from running import Run

UPGRADE = (PROJECT / "docs/operate/upgrade.md").read_text()


@pytest.mark.parametrize(
    ("command", "option", "instead"),
    [
        ("serve", "--workers=2", "run more replicas"),
        ("serve", "--leaf-lifetime=24h", "--certificate-lifetime"),
        ("serve", "--authority-lifetime=24h", "--ca-lifetime"),
        ("serve", "--authority-settle=30s", "--ca-propagation-delay"),
        ("serve", "--authority-overlap=1h", "--ca-overlap"),
        ("serve", "--client-authority=ca.crt", "--client-ca-file"),
        ("serve", "--estate-metrics", "--device-metrics"),
        ("serve", "--no-estate-metrics", "--no-device-metrics"),
        ("certs rotate", "--authority-lifetime=24h", "--ca-lifetime"),
    ],
)
def test_an_option_removed_in_0_2_is_rejected_with_its_replacement(
    gpufence: Run, command: str, option: str, instead: str
) -> None:
    done = gpufence(*command.split(), option)
    assert (done.status, done.out) == (2, "")
    name = option.partition("=")[0]
    assert f"The option {name} was removed in gpufence 0.2; " in done.err
    assert done.err.rstrip().endswith(f"{instead}.")
    assert f"`{name.replace('--no-', '--')}`" in UPGRADE
    if instead.startswith("--"):
        assert instead in gpufence(*command.split(), "--help").out


def test_an_unknown_option_is_rejected(gpufence: Run) -> None:
    assert "No such option '--wrkers'" in gpufence("serve", "--wrkers=2").err
