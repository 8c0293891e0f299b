"""Implements `make generate`: writes the generated files, except those that helm renders."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import crd
from paths import CHART, DEPLOY, PROJECT
from policies.policy import ALWAYS_EXCLUDED, Policy
from policies.schema import json_schema
from policies.shipped import default_policy_text
from reviewing import default_policy
from webhook.controller.text.objects import (
    POLICY_KIND,
    Registration,
    admission_policies,
    workload_rules,
)

# The build backend of pyproject.toml, and its dependencies on Linux.
BACKEND = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")


def texts() -> dict[Path, str]:
    """Return the content of every generated file."""
    return {
        DEPLOY / "build-requirements.txt": backend_text(),
        CHART / "crds" / "fencepolicies.yaml": crd.text(),
        CHART / "values.yaml": values_text(),
        CHART / "values.schema.json": schema_text(),
        CHART / "files" / "excluded-namespaces.yaml": excluded_text(),
        CHART / "files" / "admission-policies.yaml": matched_text(),
        CHART / "files" / "workloads.yaml": workloads_text(),
    }


_CREATE = """\
  # Whether to create the FencePolicy from the values below. Otherwise create one with the name of
  # the release: replicas are ready once it exists.
  create: true

"""


def values_text() -> str:
    """Return values.yaml, with the spec of the default policy as its last value."""
    own, _, _ = (CHART / "values.yaml").read_text().partition("\npolicy:\n")
    _, _, spec = default_policy_text().partition("\nspec:\n")
    return f"{own}\npolicy:\n{_CREATE}{spec}"


def excluded_text() -> str:
    """Return the namespaces that every release excludes, which the namespace guard names."""
    return "".join(f"- {name}\n" for name in sorted(ALWAYS_EXCLUDED))


def matched_text() -> str:
    """Return what the admission policy of each rule matches, which the chart's bindings repeat."""
    lines = []
    for obj in admission_policies(default_policy(), Registration()):
        if obj["kind"] == POLICY_KIND:
            lines.append(f"{obj['metadata']['name'].removeprefix('gpufence-')}:")
            lines += map(
                "- {}".format, map(json.dumps, obj["spec"]["matchConstraints"]["resourceRules"])
            )
    return "\n".join([*lines, ""])


def workloads_text() -> str:
    """Return by API group what webhooks are for: the chart limits the controller to it."""
    resources: dict[str, list[str]] = {}
    for rule in workload_rules():
        resources.setdefault(rule["apiGroups"][0], []).extend(rule["resources"])
    return "".join(
        f"{json.dumps(group)}: {json.dumps(found)}\n" for group, found in resources.items()
    )


def schema_text() -> str:
    """Return values.schema.json, with the schema of the policy as its definitions."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    policy = json_schema(Policy)
    schema["$defs"] = _as_values({**policy.pop("$defs"), "Policy": policy})
    schema["$defs"]["Policy"]["properties"]["create"] = {"type": "boolean"}
    return json.dumps(schema, indent=2) + "\n"


def backend_text() -> str:
    """Return build-requirements.txt: the build backend as requirements/dev.txt pins it."""
    pins = (PROJECT / "requirements" / "dev.txt").read_text()
    parts = ["# The packages that build the wheel in the image. Written by `make generate`.\n"]
    for name in BACKEND:
        pin = re.search(rf"(?m)^{name}==[^\\\n]*(?:\\\n *--hash=\w+:\w+ ?)+\n", pins)
        assert pin is not None, f"requirements/dev.txt does not pin {name}"
        parts.append(pin[0])
    return "".join(parts)


def _as_values(schema: Any) -> Any:
    """Return a schema of the policy that fits the values of a chart.

    Helm reads YAML 1.1, in which an unquoted ``off`` is the boolean false, and gpufence accepts
    false as off. The titles repeat the names.
    """
    if isinstance(schema, list):
        return [_as_values(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "off" in schema.get("enum", ()):
        return {"enum": [*schema["enum"], False]}
    # A property can have the name title; then its value is a schema.
    return {
        key: _as_values(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def write(path: Path, text: str) -> None:
    """Write a generated file and print its name, unless it is up to date."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(PROJECT)}")


def main() -> int:
    """Write each file that is out of date; return the exit code."""
    for path, text in texts().items():
        write(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
