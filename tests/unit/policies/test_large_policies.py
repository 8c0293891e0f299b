"""Policies that are as large or as expensive to validate as possible.

A client that reaches the port of a replica can send one. What a replica validates at a time delays
Pods. The longest piece takes 0.02 s. Without limits, 250 kB took 38 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from each import each
from policies import policy as module
from policies.document import PolicyError, parse_policy, parsing
from policies.kubernetes.selector import includes
from policies.policy import Pool
from policies.schema import json_schema
from specs import fence_policy

JSON = dict[str, Any]
GPU = "nvidia.com/gpu"


def pool(name: object = "a", **fields: Any) -> JSON:
    return {"name": f"p{name}", "resources": [GPU], "nodeSelector": {"pool": f"p{name}"}, **fields}


def spec(**fields: Any) -> JSON:
    return {"pools": [pool()], **fields}


def names(count: int, text: str = "n{}") -> list[str]:
    return [text.format(number) for number in range(count)]


def pools(count: int, **fields: Callable[[int], Any]) -> JSON:
    """Return pools, whose fields are made of their numbers."""
    made = range(count)
    return spec(pools=[pool(n, **{key: make(n) for key, make in fields.items()}) for n in made])


def in_values(*values: str) -> JSON:
    return {"key": "model", "operator": "In", "values": values}


EXPENSIVE: dict[str, JSON] = {
    "one resource": pools(100, resources=lambda n: [GPU, *names(98, "v.example/{}*")]),
    "nested prefixes": pools(
        100, resources=lambda n: [f"v.example/{'a' * length}*" for length in range(1, 63)]
    ),
    "values of one label": pools(
        100, matchExpressions=lambda n: [in_values(*names(170), f"m{n}")], nodeSelector=lambda n: {}
    ),
    "unknown fields": pools(100, **dict.fromkeys(names(150, "resource{}"), str)),
    "taints": pools(60, taints=lambda n: [{"key": key} for key in names(90, f"t{n}-{{}}")])
    | {"quarantineTaints": [{"key": key} for key in names(1000)]},
    "exceptions": spec(
        exceptions=[{"namespaces": [n], "reason": n, "kinds": ["Pod"]} for n in names(1000)]
    ),
    "invalid exceptions": spec(exceptions=[{"rules": ["x"] * 100, "names": [0] * 900}] * 19),
    "overrides": spec(
        overrides=[{"namespaces": names(170, f"{n}-{{}}*"), "mode": "warn"} for n in names(100)]
    ),
    "unknown rules": spec(rules=dict.fromkeys(names(100, "device-leak{}"), "x")),
    "a deep list": spec(mode=[[[[0] * 1000] * 15]]),
    "long texts": spec(
        exemptions={"usernames": ["!" * 1024] * 1000, "namespaces": ["!" * 1024] * 1000}
    ),
}


def test_a_piece_of_the_validation_takes_little_cpu_time() -> None:
    def is_quick(case: str) -> None:
        pieces, done = iter(parsing(fence_policy(EXPENSIVE[case]))), False
        problems: tuple[str, ...] = ()
        while not done:
            start = time.process_time()
            try:
                done = next(pieces) is not None
            except PolicyError as error:
                done, problems = True, error.problems
            assert time.process_time() - start < 0.3
        assert len(problems) <= 21
        assert sum(map(len, problems)) < 16_000

    each(EXPENSIVE, is_quick)


def test_overrides_are_counted_before_the_actions_of_each_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The actions of 17,000 namespaces took the longest piece, 0.13 s."""
    monkeypatch.setattr(module.Policy, "overridden", property(lambda _: pytest.fail("known")))
    with pytest.raises(PolicyError, match="API servers would have to know"):
        parse_policy(fence_policy(EXPENSIVE["overrides"]))


LARGE: dict[str, JSON] = {
    "spec.pools: has 101 entries; gpufence accepts up to 100": pools(101),
    "spec.exceptions: has 1,001 entries; gpufence accepts up to 1,000": spec(
        exceptions=[{"namespaces": ["a"], "reason": "why"}] * 1001
    ),
    "spec.pools[0].resources: has 101 entries; gpufence accepts up to 100": pools(
        1, resources=lambda n: names(101, "v.example/{}")
    ),
    "spec.pools[0].nodeSelector: has 1,001 entries; gpufence accepts up to 1,000": pools(
        1, nodeSelector=lambda n: dict.fromkeys(names(1001), "a")
    ),
    "spec.exceptions[0]: has a text of more than 1,024 characters, which is the limit": spec(
        exceptions=[{"namespaces": ["a"], "reason": "x" * 1025}]
    ),
}
"""Policies that the schema rejects as well, by their problem."""

LARGE_AS_A_WHOLE: dict[str, JSON] = {
    "the policy: has more than 20,000 values, which is the limit": spec(
        exceptions=[{"namespaces": names(20), "reason": "why"}] * 1000
    ),
    "spec.pools[0]: has more than 2,000 values, which is the limit": pools(
        1,
        deviceClasses=lambda n: names(1000),
        nodeSelector=lambda n: dict.fromkeys(names(999), "a"),
    ),
    "spec.pools[0].nodeSelector: has a text of more than 1,024 characters, which is the limit": (
        pools(1, nodeSelector=lambda n: {f"{'x' * 1025}/a": "a"})
    ),
}


def test_a_policy_above_a_limit_has_one_problem() -> None:
    schema = Draft202012Validator(json_schema(module.Policy))

    def is_rejected(problem: str) -> None:
        given = (LARGE | LARGE_AS_A_WHOLE)[problem]
        with pytest.raises(PolicyError) as caught:
            parse_policy(fence_policy(given))
        assert caught.value.problems == (problem,)
        assert schema.is_valid(given) == (problem in LARGE_AS_A_WHOLE)

    each(LARGE | LARGE_AS_A_WHOLE, is_rejected)


def test_pools_with_one_resource_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    monkeypatch.setattr(module, "includes", lambda *both: compared.append(both))
    parse_policy(fence_policy(pools(100)))
    assert not compared


RESOURCES = ("v.example/a", "v.example/ab", "v.example/*", "v.example/a*", "w.example/*")
SELECTORS = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from([[], ["1"], ["2"], ["1", "2"]]) for key in "abc"}
)


@st.composite
def some_pools(draw: st.DrawFn) -> list[JSON]:
    made = []
    for number in range(draw(st.integers(2, 4))):
        expressions = [
            {"key": key, "operator": "In" if values else "Exists", "values": values}
            for key, values in draw(SELECTORS).items()
        ]
        made.append(
            pool(
                number,
                resources=draw(st.lists(st.sampled_from(RESOURCES))),
                deviceClasses=draw(st.lists(st.sampled_from("xy"), min_size=1)),
                taints=[{"key": "gpu"}],
                nodeSelector={},
                matchExpressions=expressions,
            )
        )
    return made


@given(some_pools())
def test_law_pools_are_rejected_if_two_of_them_conflict(given: list[JSON]) -> None:
    alone = [parse_policy(fence_policy(spec(pools=[each]))).pools[0] for each in given]
    expected = any(map(_conflict, *zip(*combinations(alone, 2), strict=True)))
    try:
        parse_policy(fence_policy(spec(pools=given)))
        assert not expected
    except PolicyError:
        assert expected


def _conflict(one: Pool, two: Pool) -> bool:
    nested = includes(one.selector, two.selector) or includes(two.selector, one.selector)
    return nested and one.shared_device(two) is not None
