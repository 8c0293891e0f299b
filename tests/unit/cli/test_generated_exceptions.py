"""`gpufence check --generate-exceptions`: enforcement first, cleaning up later."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.document import parse_policy
from policies.facts import Request
from policies.shipped import default_policy_text
from reviewing import default_document
from running import BROKEN, GPU_POD, PLAIN_POD, TRESPASSER, Run
from strategies import JSON, workloads
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.generated_exceptions import exceptions_for, exceptions_yaml
from webhook.tools.documents.files import read_documents
from webhook.tools.documents.objects import Manifest, read_objects

TODAY = date(2026, 11, 21)
EXPIRES = date(2027, 2, 19)
DAY = timedelta(days=1)
REASON = (
    "generated on 2026-11-21 by gpufence check --generate-exceptions; replace this text with the "
    "reason for the exception and its owner"
)
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
SPEC: JSON = {"tolerations": [TOLERATION], "containers": [{"name": "web", "image": "nginx:1.29"}]}


def obj(api_version: str, kind: str, name: str, owner: JSON | None = None, **spec: Any) -> JSON:
    """An object that trespasses, of any kind, and perhaps one that another one controls."""
    body: JSON = {**SPEC, **spec} if kind == "Pod" else {"template": {"spec": {**SPEC, **spec}}}
    if kind == "CronJob":
        body = {"jobTemplate": {"spec": body}}
    metadata: JSON = {"name": name, "namespace": "shop"}
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [{**reference, "name": owner["metadata"]["name"]}]
    found = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    return found | ({"template": body["template"]} if kind == "PodTemplate" else {"spec": body})


def manifests(*objects: JSON) -> list[Manifest]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return [m for document in read_documents("all.json", text) for m in read_objects(document)]


def checked(
    *objects: JSON, exceptions: list[JSON] | None = None, today: date = TODAY, namespace: str = "ml"
) -> list[Result]:
    document = default_document() | {"exceptions": exceptions or []}
    policy = parse_policy(document)
    return list(evaluate(manifests(*objects), policy, Request(namespace=namespace, today=today)))


def generated(*objects: JSON, exceptions: list[JSON] | None = None) -> list[JSON]:
    """The entries as they come back from the YAML that is written."""
    made, left = exceptions_for(checked(*objects, exceptions=exceptions), TODAY, EXPIRES)
    assert not left
    read: JSON = yaml.safe_load(exceptions_yaml(made, TODAY, EXPIRES))
    entries: list[JSON] = read["exceptions"]
    return entries


def denied(results: list[Result]) -> list[str]:
    return [f"{r.kind} {r.name}" for r in results if r.verdict == "denied"]


@settings(max_examples=50)
@given(st.lists(workloads(), max_size=3), st.sampled_from(["name", "generateName"]))
def test_law_generated_exceptions_cover_all_denied_objects_until_expiry(
    objects: list[JSON], named: str
) -> None:
    for index, each in enumerate(objects):
        each["metadata"] = (
            {named: f"w{index}-"} if named == "generateName" else {named: f"w{index}"}
        )
    before = checked(*objects)
    entries = generated(*objects)
    assert bool(entries) == bool(denied(before))
    assert denied(checked(*objects, exceptions=entries)) == []
    # On the first day on which they no longer count, the same is found again.
    assert denied(checked(*objects, exceptions=entries, today=EXPIRES)) == denied(before)


@pytest.mark.parametrize(
    ("api_version", "kind", "kinds", "names"),
    [
        ("v1", "Pod", ["Pod"], ["web"]),
        ("v1", "PodTemplate", ["PodTemplate"], ["web"]),
        ("v1", "ReplicationController", ["ReplicationController", "Pod"], ["web", "web-*"]),
        ("apps/v1", "Deployment", ["Deployment", "ReplicaSet", "Pod"], ["web", "web-*"]),
        ("extensions/v1beta1", "Deployment", ["Deployment", "ReplicaSet", "Pod"], ["web", "web-*"]),
        ("apps/v1", "ReplicaSet", ["ReplicaSet", "Pod"], ["web", "web-*"]),
        ("apps/v1", "StatefulSet", ["StatefulSet", "Pod"], ["web", "web-*"]),
        ("batch/v1", "Job", ["Job", "Pod"], ["web", "web-*"]),
        ("batch/v1", "CronJob", ["CronJob", "Job", "Pod"], ["web", "web-*"]),
        ("batch.volcano.sh/v1alpha1", "Job", None, ["web", "web-*"]),
        ("kubeflow.org/v1", "PyTorchJob", None, ["web", "web-*"]),
    ],
)
def test_an_exception_for_a_workload_covers_objects_that_controllers_create(
    api_version: str, kind: str, kinds: list[str] | None, names: list[str]
) -> None:
    [entry] = generated(obj(api_version, kind, "web"))
    assert entry == {
        "rules": ["pool-trespass"],
        "namespaces": ["shop"],
        **({"kinds": kinds} if kinds else {}),
        "names": names,
        "reason": REASON,
        "expires": "2027-02-19",
    }


def test_replica_sets_and_pods_share_the_exception_of_their_deployment() -> None:
    deployment = obj("apps/v1", "Deployment", "web")
    replica_set = obj("apps/v1", "ReplicaSet", "web-7d9fc9", deployment)
    pods = [obj("v1", "Pod", f"web-7d9fc9-{end}", replica_set) for end in ("abcde", "fghij")]
    [entry] = generated(*pods, replica_set, deployment)
    assert entry["names"] == ["web", "web-*"]
    # Without its Deployment in the file, the ReplicaSet's name is the last known name.
    [entry] = generated(*pods)
    assert entry["names"] == ["web-7d9fc9", "web-7d9fc9-*"]


def test_a_pod_owned_by_a_node_gets_an_exception_for_its_name() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    [entry] = generated(obj("v1", "Pod", "proxy-n1", node))
    assert (entry["kinds"], entry["names"]) == (["Pod"], ["proxy-n1"])


def test_cyclic_owner_references_are_covered() -> None:
    one = obj("apps/v1", "ReplicaSet", "web", obj("apps/v1", "ReplicaSet", "web-1"))
    two = obj("apps/v1", "ReplicaSet", "web-1", one)
    assert denied(checked(one, two, exceptions=generated(one, two))) == []


@pytest.mark.parametrize(
    "owners", [None, [], [{}], [{"controller": True}], [{"controller": True, "name": 7}]]
)
def test_invalid_owner_references_are_ignored(owners: Any) -> None:
    pod = obj("v1", "Pod", "web")
    pod["metadata"]["ownerReferences"] = owners
    assert generated(pod)[0]["names"] == ["web"]


def test_rules_of_one_object_are_sorted_in_one_entry() -> None:
    leak = {
        "name": "web",
        "image": "i",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    }
    [entry] = generated(obj("v1", "Pod", "web"), obj("v1", "Pod", "web", containers=[leak]))
    assert entry["rules"] == ["device-leak", "pool-trespass"]


def test_entries_are_sorted_by_namespace_kind_and_name() -> None:
    pods = [obj("v1", "Pod", name) for name in ("b", "a", "c")]
    pods[1]["metadata"]["namespace"] = "bank"
    pods[2]["metadata"].pop("namespace")
    entries = generated(*pods)
    assert [(e["namespaces"], e["names"]) for e in entries] == [
        (["bank"], ["a"]),
        (["ml"], ["c"]),
        (["shop"], ["b"]),
    ]
    assert generated(*reversed(pods)) == entries


def test_an_exception_does_not_cover_other_objects() -> None:
    entries = generated(obj("apps/v1", "Deployment", "web"))
    others = [
        obj("apps/v1", "Deployment", "shop"),
        obj("apps/v1", "StatefulSet", "web"),
        obj("v1", "Pod", "webs"),
    ]
    assert len(denied(checked(*others, exceptions=entries))) == len(others)


def test_an_exception_covers_pods_whose_generated_names_are_truncated() -> None:
    name = "w" * 63
    [entry] = generated(obj("batch/v1", "Job", name))
    pods = [obj("v1", "Pod", f"{'w' * 58}abcde"), obj("v1", "Pod", f"{'w' * 50}-100000-abcde")]
    assert denied(checked(*pods, exceptions=[entry])) == []


def test_no_exceptions_are_generated_for_excepted_findings() -> None:
    web, shop = obj("v1", "Pod", "web"), obj("v1", "Pod", "shop")
    entries = generated(web)
    more = generated(web, shop, exceptions=entries)
    assert [entry["names"] for entry in more] == [["shop"]]
    assert denied(checked(web, shop, exceptions=entries + more)) == []


def test_a_finding_with_an_expired_exception_names_the_exception() -> None:
    pod = obj("v1", "Pod", "web")
    entries = generated(pod)
    assert denied(checked(pod, exceptions=entries, today=EXPIRES - DAY)) == []
    [result] = checked(pod, exceptions=entries, today=EXPIRES)
    assert result.decision is not None
    [finding] = result.decision.findings
    assert finding.detail.endswith(f"; its exception ({REASON}) expired on 2027-02-19")


def test_no_exceptions_are_generated_for_warnings() -> None:
    document = default_document()
    document["rules"]["pool-trespass"] = "warn"
    policy = parse_policy(document)
    results = evaluate(
        manifests(obj("v1", "Pod", "web")), policy, Request(namespace="ml", today=TODAY)
    )
    assert exceptions_for(results, TODAY, EXPIRES) == ([], [])


# ------------------------------------------------------------------------------ the command


def with_exceptions(text: str) -> str:
    """A policy into which a written list was put."""
    return f"{default_policy_text()}\n{text}"


def utc_today() -> date:
    return datetime.now(UTC).date()


def test_generated_exceptions_cover_exactly_the_current_findings(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "today.yaml").write_text("---\n".join([TRESPASSER, GPU_POD, PLAIN_POD]))
    before = utc_today()
    written = gpufence("check", "--generate-exceptions", "exceptions.yaml", "today.yaml")
    assert written.status == 0
    assert "3 objects: 1 denied" in written.out
    text = (tmp_path / "exceptions.yaml").read_text()
    # Midnight may have come in between.
    today = next(day for day in (before, utc_today()) if str(day) in text)
    until = today + timedelta(days=90)
    assert written.err == f"Wrote 1 exception to exceptions.yaml (expiry date: {until}).\n"
    assert text == (
        f"# 1 exception for the findings of gpufence check on {today}; expiry date: {until}.\n"
        "# Add the list to the policy, and replace each reason.\n"
        "# A name with * at the end covers the objects that controllers create for an object.\n"
        "# It also covers every other object whose name starts the same.\n"
        "exceptions:\n"
        "- rules:\n"
        "  - pool-trespass\n"
        "  namespaces:\n"
        "  - default\n"
        "  kinds:\n"
        "  - Deployment\n"
        "  - ReplicaSet\n"
        "  - Pod\n"
        "  names:\n"
        "  - web\n"
        "  - web-*\n"
        f"  reason: {REASON.replace('2026-11-21', str(today))}\n"
        f'  expires: "{until}"\n'
    )
    (tmp_path / "policy.yaml").write_text(with_exceptions(text))
    assert gpufence("policy", "validate", "policy.yaml").status == 0
    again = gpufence("check", "--policy", "policy.yaml", "today.yaml")
    assert again.status == 0
    assert "excepted  pool-trespass" in again.out
    new = TRESPASSER.replace("name: web", "name: new", 1)
    assert gpufence("check", "--policy", "policy.yaml", "-", stdin=new).status == 1


def test_exceptions_on_standard_output_replace_the_report(gpufence: Run) -> None:
    until = str(utc_today() + timedelta(days=7))
    done = gpufence(
        "check", "--generate-exceptions", "-", "--expires", until, "-", stdin=TRESPASSER
    )
    assert (done.status, done.err) == (0, "")
    [entry] = yaml.safe_load(done.out)["exceptions"]
    assert entry["expires"] == until


def test_input_without_findings_gives_an_empty_list(gpufence: Run) -> None:
    done = gpufence("check", "--generate-exceptions", "-", "-", stdin=PLAIN_POD)
    assert done.status == 0
    assert yaml.safe_load(done.out) == {"exceptions": []}


def test_invalid_input_is_reported_and_exceptions_are_generated(gpufence: Run) -> None:
    text = f"{TRESPASSER}---\n{BROKEN}"
    done = gpufence("check", "--generate-exceptions", "-", "-", stdin=text)
    assert done.status == 2
    assert len(yaml.safe_load(done.out)["exceptions"]) == 1
    assert "does not parse as YAML" in done.err


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "name: web\n",
            "labels: {}\n",
            "it has no name. Set metadata.name or metadata.generateName.",
        ),
        (
            "name: web\n",
            'name: web\n  namespace: "{{ns}}"\n',
            "'{{ns}}' is not the name of a namespace. Check the rendered manifest.",
        ),
    ],
)
def test_an_object_without_a_valid_name_or_namespace_is_reported(
    gpufence: Run, old: str, new: str, why: str
) -> None:
    named = TRESPASSER.replace("name: web", "name: shop", 1)
    text = f"{TRESPASSER.replace(old, new, 1)}---\n{named}"
    done = gpufence("check", "--generate-exceptions", "-", "-", stdin=text)
    message = f"Error: <stdin>:1: an exception cannot name this Deployment: {why}\n"
    assert (done.status, done.err) == (2, message)
    assert len(yaml.safe_load(done.out)["exceptions"]) == 1


def test_an_existing_file_is_not_overwritten(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("kept")
    done = gpufence("check", "--generate-exceptions", "policy.yaml", "-", stdin=TRESPASSER)
    assert done.status == 2
    assert done.err == (
        "Error: policy.yaml: exists already. Name a new file, or - for standard output.\n"
    )
    assert (tmp_path / "policy.yaml").read_text() == "kept"


def test_a_file_that_cannot_be_written_is_an_error(gpufence: Run) -> None:
    done = gpufence("check", "--generate-exceptions", "no/such.yaml", "-", stdin=TRESPASSER)
    assert done.status == 2
    assert done.err == ("Error: no/such.yaml: directory no does not exist. Create it.\n")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--expires", "2099-01-01"], "--expires needs --generate-exceptions FILE"),
        (["--generate-exceptions", "-", "--expires", "2020-01-01"], "is not after today"),
        (
            ["--generate-exceptions", "-", "--expires", "soon"],
            "'soon' is not a date. Write it as YYYY-MM-DD",
        ),
    ],
)
def test_an_invalid_expiry_date_is_a_usage_error(
    gpufence: Run, args: list[str], expected: str
) -> None:
    done = gpufence("check", *args, "-", stdin=TRESPASSER)
    assert (done.status, done.out) == (2, "")
    assert expected in done.err
