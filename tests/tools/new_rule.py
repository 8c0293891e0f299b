"""Begins a check: its module, its cases, its place in registry and default policy.

Run me as a file, with the rule's name, as ``make new-rule NAME=too-many-sidecars`` does. What is
written works, and is to be replaced: the tests fail as long as one TODO is left.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MODULE = '''\
"""TODO: what is wrong, in one sentence.

## What it checks

TODO

## Why

TODO

## Denied

```yaml
{denied}```

## Use instead

```yaml
{allowed}```

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.facts import Facts
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.policy import Policy

ID = "{name}"


def check(pod: Pod, _policy: Policy, _facts: Facts) -> Iterator[Finding]:
    """TODO: yield a finding for each ..."""
    if pod.metadata.get("name") == "denied":
        yield Finding(ID, pod.at("metadata.name"), "TODO: reason", "TODO: detail", "TODO: advice")
'''
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  containers:
    - name: example
      image: registry.example/example
"""
NEXT = """\
Now write {module} and its cases in {cases}. Then:

  make golden    writes the findings of the cases: read the diff
  make render    takes the default policy into the chart
  make test
and name the rule in README.md and CHANGELOG.md.
"""


class NewRuleError(Exception):
    """The rule cannot be begun; the message says why."""


def begin(root: Path, name: str) -> list[Path]:
    """Write what a new check needs into the project at ``root``, and return the new files.

    Raises:
        NewRuleError: the name is none for a rule, or is taken.
    """
    if not re.fullmatch(r"[a-z]+(-[a-z]+)+", name):
        raise NewRuleError(f"{name!r} is no name for a rule: write words-with-hyphens")
    stem = f"check_{name.replace('-', '_')}"
    cases = root / "tests" / "cases" / name
    denied, allowed = POD.format(name="denied"), POD.format(name="allowed")
    files = {
        root / "policies" / "rules" / f"{stem}.py": MODULE.format(name=name, denied=denied, allowed=allowed),
        cases / "fail" / "a-pod-that-is-wrong.yaml": denied,
        cases / "pass" / "a-pod-that-is-right.yaml": allowed,
    }
    if cases.exists() or any(file.exists() for file in files):
        raise NewRuleError(f"there is a rule {name} already")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    _register(root / "policies" / "registry.py", stem)
    policy = root / "policies" / "document" / "default.yaml"
    policy.write_text(_after_last_rule(policy.read_text(), f"  {name}: warn\n"))
    return list(files)


def _register(registry: Path, stem: str) -> None:
    text = registry.read_text()
    imported = sorted({*re.findall(r"^    (check_\w+),$", text, re.MULTILINE), stem})
    block = "".join(f"    {module},\n" for module in imported)
    text = re.sub(r"(?:^    check_\w+,\n)+", lambda _: block, text, count=1, flags=re.MULTILINE)
    before, checks, after = re.split(r"(?s)(\nCHECKS: .*?\n)(?=\)\n)", text)
    registry.write_text(f'{before}{checks}    _check({stem}, default="warn"),\n{after}')


def _after_last_rule(policy: str, line: str) -> str:
    rules = re.search(r"^rules:\n(?:  [\w-]+: \w+\n)+", policy, re.MULTILINE)
    if rules is None:
        raise NewRuleError("the default policy has no list of rules")
    return policy[: rules.end()] + line + policy[rules.end() :]


def main(arguments: list[str]) -> int:
    """Begin the rule that is named, and say what comes next; return the exit code."""
    root = Path(__file__).parents[2]
    try:
        module, *rest = begin(root, arguments[0] if arguments else "")
    except NewRuleError as error:
        print(f"{error}. Say: make new-rule NAME=too-many-sidecars", file=sys.stderr)
        return 2
    cases = rest[0].parents[1]
    print(NEXT.format(module=module.relative_to(root), cases=cases.relative_to(root)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
