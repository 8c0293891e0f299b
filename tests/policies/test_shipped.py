"""The compiled default policy: the same as its document, and loaded without what validates."""

from __future__ import annotations

import subprocess
import sys

import yaml

from policies.policy import default_policy_text, parse_policy
from policies.shipped import COMPILED, compiled_text, shipped_policy


def test_it_is_the_document_compiled() -> None:
    policy = parse_policy(yaml.safe_load(default_policy_text())).compile()
    assert COMPILED.read_text() == compiled_text(policy), "run make render"


def test_it_is_read_back_as_what_was_written() -> None:
    policy = shipped_policy()
    assert compiled_text(policy) == COMPILED.read_text()
    (pool,) = policy.pools
    assert policy.pool_of_class == {"gpu.nvidia.com": pool, "mig.nvidia.com": pool}
    assert policy.pool_of_resource("nvidia.com/mig-1g.10gb") is pool
    assert str(pool.taints[0]) == "nvidia.com/gpu:NoSchedule"
    assert "kube-system" in policy.exemptions.namespaces


def test_it_takes_no_pydantic() -> None:
    program = """if True:
        import sys
        from policies.shipped import shipped_policy
        assert shipped_policy().pools
        assert "pydantic" not in sys.modules, "pydantic was imported"
    """
    subprocess.run([sys.executable, "-c", program], check=True)
