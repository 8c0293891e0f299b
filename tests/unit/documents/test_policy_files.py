"""Policies from files: their content, and the errors of files without a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.shipped import default_policy_text
from running import Run
from specs import fence_policy
from webhook.documents.document import InputError
from webhook.documents.policy_files import MAX_BYTES, live_policy, load_policy

DEFAULT = default_policy_text()
POOLS_LINE = DEFAULT.partition("\n  pools:")[0].count("\n") + 2
INVALID = {
    "not UTF-8": (b"kind: \xff", "{file}:1: is not UTF-8 text"),
    "invalid YAML": (b"kind: [", "{file}:1"),
    "two documents": (b"a: 1\n---\nb: 2\n", "must hold one document of kind FencePolicy"),
    "text": (b"text\n", "must be a mapping with kind: FencePolicy, but is 'text'"),
    "empty": (b"", "must hold one document of kind FencePolicy, but holds 0"),
    "an unknown key": (
        DEFAULT.replace("pools:", "poolz:").encode(),
        f"{{file}}:{POOLS_LINE}: spec.poolz: unknown field; did you mean pools?",
    ),
    "a lone surrogate": (DEFAULT.replace("pools:", '"\\ud800": 1\n  pools:').encode(), "{file}"),
}


def test_a_file_with_the_text_of_the_default_policy_is_the_default_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(DEFAULT)
    assert load_policy(str(file)).rules == load_policy(None).rules


@pytest.mark.parametrize(("content", "problem"), INVALID.values(), ids=INVALID)
def test_an_invalid_file_is_rejected_with_the_message_of_validate(
    content: bytes, problem: str, tmp_path: Path, gpufence: Run
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_policy(str(file))
    assert problem.format(file=file) in " ".join(caught.value.lines)
    output = gpufence("policy", "validate", file)
    assert output.status == 2
    lines = [f"Error: {line}" for line in caught.value.lines]
    assert output.err.splitlines() == [
        line.encode(errors="backslashreplace").decode() for line in lines
    ]


def test_a_policy_file_without_an_end_is_not_read_whole(gpufence: Run) -> None:
    problem = "Error: /dev/zero: is larger than 4 MiB. Name a smaller file.\n"
    commands = ("check - --policy", "policy validate")
    found = {command: gpufence(*command.split(), "/dev/zero") for command in commands}
    assert found == dict.fromkeys(commands, (2, "", problem))


def test_a_policy_has_at_most_4_mib(tmp_path: Path, gpufence: Run) -> None:
    found = {}
    for spare in (0, -1):
        comment = b"#" * (MAX_BYTES - spare - len(DEFAULT.encode()) - 1) + b"\n"
        content = comment + DEFAULT.encode()
        (tmp_path / "policy.yaml").write_bytes(content)
        by_name = gpufence("policy", "validate", "policy.yaml").status
        found[spare] = by_name, gpufence("policy", "validate", "-", stdin=content).status
    assert found == {0: (0, 0), -1: (2, 2)}


def test_an_invalid_policy_in_a_cluster_is_an_error() -> None:
    invalid = "FencePolicy gpufence: spec.pools: is empty; add at least"
    with pytest.raises(InputError, match=invalid):
        live_policy("gpufence", fence_policy({"pools": []}))
