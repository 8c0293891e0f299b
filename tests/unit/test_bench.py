"""The parts of the benchmarks that depend on names of the product."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench import cli


def test_the_share_of_parsing_is_a_part_of_the_share_of_reading(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    shares = cli.shares(tmp_path, 1)
    assert 0 < shares.parsing < shares.reading < 1
