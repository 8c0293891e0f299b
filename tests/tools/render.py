"""Writes what is generated, under deploy/ and elsewhere, as `make render` does: run me."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paths import PROJECT

if TYPE_CHECKING:
    from deploy.chart import Helm

DEPLOY = PROJECT / "deploy"
CHART = DEPLOY / "helm" / "gpufence"

# A chart can read no file outside of its own folder, and Flux follows no link that leads out.
COPIES = {
    CHART / "files" / "gpufence.json": DEPLOY / "dashboards" / "gpufence.json",
    CHART / "files" / "gpufence.rules.yaml": DEPLOY / "alerts" / "gpufence.rules.yaml",
}

# The build backend of pyproject.toml, and what it needs on Linux.
BACKEND = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")

HEADER = """\
# gpufence {version} without Helm:
#
#   kubectl apply --server-side -f install.yaml
#
# Written by `make render` from the chart in helm/gpufence with its default values; change those.
"""


def texts() -> dict[Path, str]:
    """Return what every generated file should be, but for install.yaml."""
    return {
        PROJECT / "policies" / "document" / "default.json": policy_text(),
        DEPLOY / "build-requirements.txt": backend_text(),
        CHART / "values.yaml": values_text(),
        CHART / "values.schema.json": schema_text(),
        **{copy: source.read_text() for copy, source in COPIES.items()},
    }


def policy_text() -> str:
    """Return the default policy compiled, which loads without pydantic."""
    from policies.document.model import default_policy_text, parse_policy
    from policies.document.shipped import compiled_text

    return compiled_text(parse_policy(yaml.safe_load(default_policy_text())).compile())


def values_text() -> str:
    """Return values.yaml, with the default policy as its last value."""
    own, _, _ = (CHART / "values.yaml").read_text().partition("\npolicy:\n")
    policy = (PROJECT / "policies" / "document" / "default.yaml").read_text()
    return f"{own}\npolicy:\n{textwrap.indent(policy, '  ')}"


def schema_text() -> str:
    """Return values.schema.json, with the policy document's own schema as its definitions."""
    from policies.document.model import FencePolicy

    schema = json.loads((CHART / "values.schema.json").read_text())
    policy = FencePolicy.model_json_schema(by_alias=True)
    definitions = {**policy.pop("$defs"), "FencePolicy": policy}
    schema["$defs"] = _as_values(definitions)
    return json.dumps(schema, indent=2) + "\n"


def backend_text() -> str:
    """Return build-requirements.txt: the build backend as requirements/dev.txt pins it."""
    pins = (PROJECT / "requirements" / "dev.txt").read_text()
    parts = ["# What the image's build installs to build the wheel. Written by `make render`.\n"]
    for name in BACKEND:
        pin = re.search(rf"(?m)^{name}==[^\\\n]*(?:\\\n *--hash=\w+:\w+ ?)+\n", pins)
        assert pin is not None, f"requirements/dev.txt does not pin {name}"
        parts.append(pin[0])
    return "".join(parts)


def install_text(helm: Helm) -> str:
    """Return install.yaml, which is the chart's own output."""
    from importlib.metadata import version

    return HEADER.format(version=version("gpufence")) + helm.text({"createNamespace": True})


def _as_values(schema: Any) -> Any:
    """Return a schema of the policy as it fits a chart's values.

    Helm reads YAML 1.1, in which an unquoted ``off`` is the boolean false; gpufence takes that for
    what is meant. The titles repeat the names.
    """
    if isinstance(schema, list):
        return [_as_values(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "off" in schema.get("enum", ()):
        return {"enum": [*schema["enum"], False]}
    # A property may be called title, too; then what stands there is its schema.
    return {
        key: _as_values(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def main() -> int:
    """Write every file that is not as it should be, and name it; return the exit code."""
    from controlplane.errors import ControlPlaneError
    from deploy.chart import Helm, HelmError, binary

    with tempfile.TemporaryDirectory() as home:
        try:
            for path, text in texts().items():
                _write(path, text)
            # Rendered from what was just written.
            _write(DEPLOY / "install.yaml", install_text(Helm(binary(), Path(home))))
        except (ControlPlaneError, HelmError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        print(f"wrote {path.relative_to(PROJECT)}")


if __name__ == "__main__":
    sys.exit(main())
