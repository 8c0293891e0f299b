"""Fixes of files: only findings change a file, and only where they are.

Manifests are written in many styles: block and flow, quotes, comments, indents, line ends, JSON.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.profile import law
from policies.facts import Request
from policies.rules.check_missing_shared_memory import SHARED_MEMORY
from policies.shipped import shipped_policy
from webhook.documents.files import read_documents
from webhook.documents.objects import read_objects
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.fixes import fixed_files
from webhook.tools.cli.manifests import Source

GPU = "nvidia.com/gpu"


def judge(manifests: Any) -> list[Result]:
    return list(evaluate(list(manifests), shipped_policy(), Request(namespace="ml")))


def findings(text: str) -> list[tuple[str, bool]]:
    manifests = [m for d in read_documents("a.yaml", text) for m in read_objects(d)]
    return [(f.rule, bool(r.fix(f))) for r in judge(manifests) for f in r.findings]


def container(random: Random, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "image": "registry.example/train:1"}
    resources: dict[str, Any] = {}
    for side in ("limits", "requests"):
        chosen: dict[str, Any] = {"cpu": "2"} if random.random() < 0.5 else {}
        if random.random() < 0.4:
            chosen[random.choice([GPU, GPU, "nvidia.com/gpus"])] = random.choice([1, 2, "2", 8])
        if chosen or random.random() < 0.2:
            resources[side] = chosen or None
    if resources:
        made["resources"] = resources
    names = random.sample(["A", "NVIDIA_VISIBLE_DEVICES", "B"], random.randrange(4))
    if names:
        made["env"] = [{"name": n, "value": random.choice(["all", "# no", "x: y"])} for n in names]
    if random.random() < 0.2:
        made["volumeMounts"] = [{"name": "shm", "mountPath": SHARED_MEMORY}]
    if random.random() < 0.2:
        made["args"] = ["a\n# no comment\nb\n", "c"]
    return made


def pod_spec(random: Random) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [container(random, n) for n in "ab"[: random.choice([1, 1, 2])]]
    }
    if random.random() < 0.5:
        tolerations = [{"key": GPU, "operator": "Exists"}, {"key": "spot", "effect": "NoSchedule"}]
        spec["tolerations"] = random.sample(tolerations, random.choice([1, 2]))
    if random.random() < 0.4:
        spec["volumes"] = random.choice(
            [None, [], [{"name": "shm", "emptyDir": random.choice([{}, None])}]]
        )
    items = list(spec.items())
    random.shuffle(items)
    return dict(items)


def manifest(random: Random) -> dict[str, Any]:
    spec = pod_spec(random)
    if random.random() < 0.4:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec | {"restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "t"},
        "spec": {"template": template},
    }
    return (
        job if random.random() < 0.8 else {"apiVersion": "v1", "kind": "List", "items": [job, job]}
    )


class Writer:
    """Writes a value as YAML, in a style that changes from line to line."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.step = random.choice([2, 2, 4])
        self.lists = random.choice([0, 2])
        self.lines: list[str] = []

    def comment(self, indent: int) -> None:
        if self.random.random() < 0.15:
            self.lines.append(
                self.random.choice([f"{' ' * indent}# é note: - x", "", "# at the start"])
            )

    def end(self) -> str:
        return self.random.choice(["", "", "", " ", "  # why"])

    def scalar(self, value: Any) -> str:
        if value is None:
            return self.random.choice(["", "null", "~"])
        if isinstance(value, str):
            plain = re.fullmatch(r"[a-zA-Z/][\w./-]*", value)
            styles = [json.dumps(value), *([value, value] if plain else [])]
            return self.random.choice([*styles, f"'{value}'"] if "\n" not in value else styles)
        return json.dumps(value)

    def key(self, key: str) -> str:
        return self.random.choice([key, key, key, json.dumps(key), f"'{key}'"])

    def flow(self, value: Any) -> str:
        if isinstance(value, dict):
            return (
                "{"
                + ", ".join(f"{self.key(k)}: {self.flow(v) or 'null'}" for k, v in value.items())
                + "}"
            )
        if isinstance(value, list):
            return "[" + ", ".join(self.flow(v) or "null" for v in value) + "]"
        return self.scalar(value)

    def write(self, value: Any, indent: int, start: str) -> None:
        """Write a collection; its first line starts with ``start``."""
        if isinstance(value, dict):
            for key, item in value.items():
                self.entry(f"{start}{self.key(key)}:", item, indent)
                start = " " * indent
        else:
            for item in value:
                is_block = isinstance(item, dict) and item and self.random.random() < 0.8
                if is_block:
                    self.write(item, indent + 2, f"{start}- ")
                else:
                    self.lines.append(f"{start}- {self.flow(item)}{self.end()}")
                start = " " * indent
                self.comment(indent)

    def entry(self, head: str, value: Any, indent: int) -> None:
        if isinstance(value, str) and value.endswith("\n"):
            self.lines.append(f"{head} |")
            self.lines += [f"{' ' * (indent + 2)}{line}" for line in value.splitlines()]
        elif isinstance(value, dict | list) and value and self.random.random() < 0.85:
            self.lines.append(head + self.end())
            below = indent + (self.lists if isinstance(value, list) else self.step)
            self.comment(below)
            self.write(value, below, " " * below)
        else:
            self.lines.append(f"{head} {self.flow(value)}".rstrip() + self.end())
        self.comment(indent)


def written(random: Random) -> str:
    """Return a file: documents of YAML, or one of JSON."""
    if random.random() < 0.2:
        return json.dumps(manifest(random), indent=random.choice([None, 2, 4]))
    documents = []
    for _ in range(random.choice([1, 1, 2])):
        writer = Writer(random)
        writer.write(manifest(random), 0, "")
        documents.append("\n".join(writer.lines))
    text = "\n---\n".join(documents) + random.choice(["\n", "\n", ""])
    return text.replace("\n", "\r\n") if random.random() < 0.15 else text


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixes") / "a.yaml"


@law
@given(seed=st.integers(0, 2**32))
def test_fixes_leave_everything_else_and_a_second_run_finds_nothing(path: Path, seed: int) -> None:
    text = written(Random(seed))
    path.write_bytes(text.encode())
    before = findings(text)
    changed = list(fixed_files([Source(str(path))], judge))
    assert path.read_bytes() == text.encode()
    if not any(is_fixable for _, is_fixable in before):
        assert changed == []
        return
    if not changed:  # A fix that is not certain in this text.
        return
    [file] = changed
    file.write()
    after = path.read_bytes().decode()
    assert after == file.after
    assert comments(after) == comments(text)
    # A device with the right name may need shared memory.
    assert sum(is_fixable for _, is_fixable in findings(after)) < len(before)
    assert len(findings(after)) <= len(before)
    assert list(fixed_files([Source(str(path))], judge)) == []
    # Each line that stays is one of the file, in its order.
    kept = [line[1:] for line in file.difference().splitlines() if line.startswith(" ")]
    assert all(line in text for line in kept)
