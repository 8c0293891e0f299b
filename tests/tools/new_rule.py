"""Adds a check to the project: `make new-rule NAME=too-many-sidecars` runs it.

The new check is complete: it is registered, in the default policy, and has a page and cases.
`make unit` fails only because the TODOs in its module are still there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from paths import PROJECT

_PAGE = """\
## What it checks

TODO: name the Pods that the check reports, and the fields that decide.

## Why

TODO: say what happens to such a Pod without the check.

## Denied

```yaml
{denied}```

## Use instead

```yaml
{allowed}```

## Settings

The rule has no settings except its action.
"""
_TITLE = "TODO: describe what is wrong, in one sentence."
_MODULE = '''\
"""{title}"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod

ID = "{name}"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """TODO: yield a finding for each ..."""
    if pod.metadata.name == "denied":
        path = pod.at("metadata.name")
        yield Finding(ID, path, "TODO: reason", "TODO: detail", "TODO: remediation")
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
ROW = "| [`{name}`](../rules/{name}.md) | TODO: an example | TODO: what to do |\n"
NEXT = """\
Next:
  1. Replace the TODOs in {module}, {catalog}, {page}
     and {denied}, and the cases in {cases}.
  2. make golden    writes the expected findings of the cases; read the diff
  3. make unit      passes when no TODO is left
  4. make render    renders deploy/install.yaml with the new default policy
  5. Add a line to CHANGELOG.md.
"""


CATALOG = Path("policies/catalog.py")
MODULES = Path("policies/rules")
PAGES = Path("webhook/tools/cli/rules")
DENIED = Path("docs/get-started/denied.md")
"""The page for those whose Pod is denied: it has a row for each check."""


class NewRuleError(Exception):
    """The rule cannot be added; the message gives the reason."""


def add(root: Path, name: str) -> list[Path]:
    """Add a check to the project at ``root``, and return the new files, module and page first.

    Raises:
        NewRuleError: the name is not a rule name, or the rule exists.
    """
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name):
        raise NewRuleError(f"{name!r} is not a rule name: use lower-case words with hyphens")
    stem = f"check_{name.replace('-', '_')}"
    cases = root / "tests" / "cases" / name
    denied, allowed = POD.format(name="denied"), POD.format(name="allowed")
    files = {
        root / MODULES / f"{stem}.py": _MODULE.format(title=_TITLE, name=name),
        root / PAGES / f"{name}.md": _PAGE.format(denied=denied, allowed=allowed),
        cases / "fail" / "a-wrong-pod.yaml": denied,
        cases / "pass" / "a-right-pod.yaml": allowed,
    }
    if cases.exists() or any(file.exists() for file in files):
        raise NewRuleError(f"the rule {name} exists")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    _register(root / "policies" / "registry.py", stem)
    catalog = root / CATALOG
    titles, actions = catalog.read_text().split("\n}\n", 1)
    actions = actions.replace("\n}\n", f'\n    "{name}": "warn",\n}}\n')
    catalog.write_text(f'{titles}\n    "{name}": "{_TITLE}",\n}}\n{actions}')
    policy = root / "policies" / "default.yaml"
    policy.write_text(_after_last_rule(policy.read_text(), f"    {name}: warn\n"))
    page = root / DENIED
    page.write_text(_after_last_row(page.read_text(), ROW.format(name=name)))
    return list(files)


def _register(registry: Path, stem: str) -> None:
    text = registry.read_text()
    imported = sorted({*re.findall(r"^    (check_\w+),$", text, re.MULTILINE), stem})
    block = "".join(f"    {module},\n" for module in imported)
    text = re.sub(r"(?:^    check_\w+,\n)+", lambda _: block, text, count=1, flags=re.MULTILINE)
    before, rules, after = re.split(r"(?s)(\nRULES: .*?\n)(?=\)\n)", text)
    registry.write_text(f"{before}{rules}    _rule({stem}),\n{after}")


def _after_last_rule(policy: str, line: str) -> str:
    rules = re.search(r"^  rules:\n(?:    [\w-]+: \w+\n)+", policy, re.MULTILINE)
    if rules is None:
        raise NewRuleError("the default policy has no list of rules")
    return policy[: rules.end()] + line + policy[rules.end() :]


def _after_last_row(page: str, row: str) -> str:
    *_, last = re.finditer(r"(?m)^\| \[`[\w-]+`\]\(\.\./rules/.*\n", page)
    return page[: last.end()] + row + page[last.end() :]


def generate(root: Path, name: str) -> None:
    """Write the generated files and the expected findings, in processes that know the new rule.

    Raises:
        NewRuleError: a process failed; the message has its output.
    """
    golden = ["pytest", "-q", "tests/unit/policies/test_cases.py", "-k", name]
    for command, environ in ((["generate"], {}), (golden, {"GPUFENCE_GOLDEN": "1"})):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=root,
            env=os.environ | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NewRuleError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def main(arguments: list[str]) -> int:
    """Add the rule that is named, and print the next steps; return the exit code."""
    name = arguments[0] if arguments else ""
    try:
        module, page, case, *_ = add(PROJECT, name)
        generate(PROJECT, name)
    except NewRuleError as error:
        print(f"{error}\nUsage: make new-rule NAME=too-many-sidecars", file=sys.stderr)
        return 2
    cases = case.parents[1].relative_to(PROJECT)
    files = {"module": module.relative_to(PROJECT), "page": page.relative_to(PROJECT)}
    print(NEXT.format(**files, catalog=CATALOG, denied=DENIED, cases=cases), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
