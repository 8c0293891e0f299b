"""Names of objects in options become parts of URLs."""

from __future__ import annotations

import pytest

from running import Run

RULE = "up to 253 lower-case letters, digits, '-' and '.'"


@pytest.mark.parametrize(
    ("arguments", "option", "wrong"),
    [
        (("doctor", "--namespace", "../../../apis"), "--namespace", "../../../apis"),
        (("doctor", "--name", "gpufence?watch=true"), "--name", "gpufence?watch=true"),
        (("doctor", "--name", ""), "--name", ""),
        (("doctor", "--try-in", "Default"), "--try-in", "Default"),
        (("doctor", "--try-in", "a" * 254), "--try-in", "a" * 254),
        (("unregister", "--namespace", "a/../b"), "--namespace", "a/../b"),
        (("unregister", "--name", "gpufence?dryRun=All"), "--name", "gpufence?dryRun=All"),
        (("certs", "status", "--secret", "a/b"), "--secret", "a/b"),
        (("certs", "status", "--name", "A"), "--name", "A"),
        (("certs", "rotate", "--namespace", ".."), "--namespace", ".."),
        (("serve", "--namespace", "a/b"), "--namespace", "a/b"),
        (("serve", "--secret", "a?b"), "--secret", "a?b"),
        (("serve", "--name", "a/b"), "--name", "a/b"),
        (("serve", "--exclude-namespace", "a b"), "--exclude-namespace", "a b"),
        (("audit", "--policy-of", "gpufence-system/a/b"), "--policy-of", "a/b"),
        (("manifests", "--cert-manager", "a/b/c"), "--cert-manager", "b/c"),
        (("audit", "--policy-of", "../gpufence"), "--policy-of", ".."),
        (("audit", "--policy-of", "fence system/gpufence"), "--policy-of", "fence system"),
    ],
)
def test_an_invalid_object_name_is_rejected_before_any_request(
    gpufence: Run, arguments: tuple[str, ...], option: str, wrong: str
) -> None:
    done = gpufence(*arguments)
    assert done.status == 2
    assert f"Invalid value for '{option}'" in done.err
    assert f": {wrong!r} is not a valid name: use {RULE}" in done.err


def test_a_valid_object_name_is_accepted(gpufence: Run) -> None:
    for command in (
        ("doctor", "--namespace", "fence", "--name", "gpufence.v2", "--try-in", "ml-1"),
        ("audit", "--policy-of", "fence/gpufence.v2"),
    ):
        done = gpufence(*command, "--kubeconfig", "missing")
        assert done.status == 2
        assert "kubeconfig" in done.err
