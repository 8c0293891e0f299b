"""Values of options: names of objects, which become parts of URLs, and durations."""

from __future__ import annotations

import click
import pytest

from running import Run
from webhook.tools.cli.options import parse_duration

RULE = "up to 253 lower-case letters, digits, '-' and '.'"


@pytest.mark.parametrize(
    ("arguments", "option", "wrong"),
    [
        (("doctor", "--namespace", "../../../apis"), "--namespace", "../../../apis"),
        (("doctor", "--name", "gpufence?watch=true"), "--name", "gpufence?watch=true"),
        (("doctor", "--name", ""), "--name", ""),
        (("doctor", "--try-in", "Default"), "--try-in", "Default"),
        (("doctor", "--try-in", "a" * 254), "--try-in", "a" * 254),
        (("doctor", "--namespace", "a/../b"), "--namespace", "a/../b"),
        (("doctor", "--name", "gpufence?dryRun=All"), "--name", "gpufence?dryRun=All"),
        (("certs", "status", "--ca-secret", "a/b"), "--ca-secret", "a/b"),
        (("certs", "status", "--name", "A"), "--name", "A"),
        (("certs", "status", "--namespace", ".."), "--namespace", ".."),
        (("controller", "--namespace", "a/b"), "--namespace", "a/b"),
        (("controller", "--serving-secret", "a?b"), "--serving-secret", "a?b"),
        (("controller", "--name", "a/b"), "--name", "a/b"),
        (("controller", "--exclude-namespace", "a b"), "--exclude-namespace", "a b"),
        (("audit", "--fence-policy", "a/b"), "--fence-policy", "a/b"),
        (("manifests", "--cert-manager", "a/b/c"), "--cert-manager", "b/c"),
        (("serve", "--fence-policy", ".."), "--fence-policy", ".."),
    ],
)
def test_an_invalid_object_name_is_rejected_before_any_request(
    gpufence: Run, arguments: tuple[str, ...], option: str, wrong: str
) -> None:
    done = gpufence(*arguments)
    assert done.status == 2
    assert f"Invalid value for '{option}'" in done.err
    assert f": {wrong!r} is not a valid name: use {RULE}" in done.err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3s", 3.0),
        ("1m30s", 90.0),
        ("1h0m0.5s", 3600.5),
        ("8760h", 31_536_000.0),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("300ms", 0.3),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("0", 0.0),
    ],
)
def test_go_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "3", "s", ".s", "-3s", "+3s", "3 s", "3s ", "3S", "1s2", "soon", "1e3s", "٣s", "3s\n"],
)
def test_invalid_durations_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it like 3s, 1m30s or 500ms"):
        parse_duration(text)
