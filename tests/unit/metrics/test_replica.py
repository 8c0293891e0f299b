"""Counters of what happened, with labels that no client can multiply."""

from __future__ import annotations

import re

from reviewing import default_policy, deployment, gpu_pod, plain_pod, review, trespassing_pod
from served import Hook, MakeHook

REQUESTS = "gpufence_admission_requests_total"


async def test_each_response_is_counted_by_its_result(hook: Hook) -> None:
    await hook.post("/mutate", review(gpu_pod()))
    await hook.post("/mutate", review(plain_pod()))
    await hook.post("/validate", review(plain_pod()))
    await hook.post("/validate", review(deployment(trespassing_pod())))
    await hook.post("/validate", review(plain_pod() | {"spec": None}))
    await hook.post("/validate", b"no JSON")
    await hook.post("/validate", review(plain_pod(), operation="GUESS"))

    def labels(kind: str, operation: str, path: str, result: str) -> str:
        return f'{{kind="{kind}",operation="{operation}",path="{path}",result="{result}"}}'

    assert await hook.metric(REQUESTS) == {
        labels("Pod", "CREATE", "/mutate", "patched"): 1,
        labels("Pod", "CREATE", "/mutate", "allowed"): 1,
        labels("Pod", "CREATE", "/validate", "allowed"): 1,
        labels("Deployment", "CREATE", "/validate", "denied"): 1,
        labels("Pod", "CREATE", "/validate", "malformed"): 1,
        labels("other", "unknown", "/validate", "bad_request"): 2,
    }
    assert await hook.metric("gpufence_admission_duration_seconds_count") == {
        '{path="/mutate"}': 2,
        '{path="/validate"}': 5,
    }
    assert await hook.metric("gpufence_internal_errors_total") == {"": 0}


async def test_findings_are_counted_by_rule_and_action(make_hook: MakeHook) -> None:
    hook = await make_hook(default_policy(pool_trespass="warn"))
    await hook.post("/mutate", review(trespassing_pod()))
    await hook.post("/validate", review(trespassing_pod()))
    assert await hook.metric("gpufence_findings_total") == {
        '{action="warn",rule="pool-trespass"}': 1
    }


async def test_the_first_event_of_an_alert_is_an_increase(hook: Hook) -> None:
    assert '{rule="pool-trespass"}' in await hook.metric("gpufence_rule_failures_total")
    assert '{reason="too_many"}' in await hook.metric("gpufence_connections_refused_total")


async def test_unknown_kinds_share_one_metric_series(hook: Hook) -> None:
    for number in range(50):
        custom = plain_pod() | {"apiVersion": f"v{number}.example/v1", "kind": f"Kind{number}"}
        await hook.post("/validate", review(custom))
        await hook.post(f"/validate?timeout={number + 1}s", review(custom | {"kind": "Pod"}))
    assert len(await hook.metric(REQUESTS)) == 1


async def test_info_metrics_report_the_policy_and_the_version(hook: Hook) -> None:
    assert await hook.metric("gpufence_policy_info") == {'{policy="test",pools="nvidia"}': 1}
    [labels] = await hook.metric("gpufence_build_info")
    assert re.fullmatch(r'\{python="3\.\d+\.\d+\S*",version="\d\S*"\}', labels)


async def test_a_tracked_value_is_exported_as_it_is_at_the_scrape(hook: Hook) -> None:
    name, values = "gpufence_certificate_expiry_timestamp_seconds", [1795000000.0, 1.0]
    hook.metrics.track(name, values.pop)
    assert await hook.metric(name) == {"": 1.0}
    assert await hook.metric(name) == {"": 1795000000.0}
