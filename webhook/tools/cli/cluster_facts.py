"""What a command knows of a live cluster. It is listed once; claims are looked up one by one."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import click
import msgspec
from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.cluster.claims import LookupResult
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.gangs import read_gangs
from webhook.cluster.limits import defaults_among
from webhook.cluster.manifests import Complete
from webhook.cluster.state import NAMESPACES
from webhook.documents.document import InputError
from webhook.kube.client import KubeApi
from webhook.kube.collection import LabeledMetadata
from webhook.kube.credentials import Load
from webhook.kube.errors import FORBIDDEN, INVALID, ApiError, ClusterError
from webhook.kube.reflector import Watches
from webhook.tools.custom_resources import workload
from webhook.wording import counted

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# Unlike a server, a command can wait for a claim.
_LOOKUP_SECONDS = 10.0
_SECONDS = 2 * _LOOKUP_SECONDS


class _Manifest(msgspec.Struct):
    """The fields that are read of a manifest."""

    metadata: LabeledMetadata = LabeledMetadata()


@contextmanager
def live_facts(load: Load, policy: Policy) -> Iterator[Complete]:
    """Provide a function that adds a cluster's facts to those about an object, which win.

    Raises:
        InputError: the cluster is not reachable.
    """
    results: Counter[LookupResult] = Counter()
    # The warning below replaces the log events of the server.
    logging.getLogger("gpufence").addHandler(logging.NullHandler())
    with asyncio.Runner() as runner:
        connection = KubeApi(load)
        cluster = ClusterFacts(
            Watches(connection),
            policy,
            looked_up=lambda result: results.update([result]),
            lookup_seconds=_LOOKUP_SECONDS,
        )

        @cache
        def read(path: str) -> JSONObject:
            """Return an object, or nothing if there is none, or the account may not read it."""
            try:
                return runner.run(connection.read(path)) or {}
            except ApiError as error:
                if error.status != FORBIDDEN:
                    raise
                return {}

        def listed(namespace: str, kind: str) -> list[tuple[str, JSONObject]]:
            items = read(f"{NAMESPACES.path}/{namespace}/{kind.lower()}s").get("items") or ()
            return [(namespace, {**item, "kind": kind}) for item in items]

        def complete(request: Request, facts: Facts, obj: JSONObject) -> Facts:
            known = runner.run(cluster.facts_for(request, workload(obj, policy), _SECONDS))
            inside = request.namespace
            live = read(f"{NAMESPACES.path}/{inside}").get("metadata") or {}
            labels = known.namespace_labels
            if facts.namespace_labels is not None:
                labels = _labels_after(live, facts.namespace_labels)
            elif labels is None and live:
                # A replica knows labels only if a pool needs them.
                labels = live.get("labels") or {}
            classes = {**known.extended_resource_classes, **facts.extended_resource_classes}
            return replace(
                known,
                claims={**known.claims, **facts.claims},
                claim_templates={**known.claim_templates, **facts.claim_templates},
                extended_resource_classes=classes,
                gangs=facts.gangs,
                quotas={**read_gangs(listed(inside, "ResourceQuota"))[1], **facts.quotas},
                defaults={**defaults_among(listed(inside, "LimitRange")), **facts.defaults},
                template_readers=facts.template_readers,
                topologies=facts.topologies,
                namespace_labels=labels,
                runtime_classes={**known.runtime_classes, **facts.runtime_classes},
                runtime_scheduling=facts.runtime_scheduling,
            )

        try:
            runner.run(cluster.watches.load())
            runner.run(cluster.read_version())
            for problem in cluster.state.offers.problems:
                click.echo(f"Warning: {problem}", err=True)
            yield complete
        except ClusterError as error:
            raise InputError([str(error)]) from error
        finally:
            runner.run(cluster.stop())
    if unanswered := results["failed"] + results["late"]:
        problem = cluster.claims.problem or "the API server did not respond in time"
        lookups_failed = f"{counted(unanswered, 'claim')} could not be looked up"
        click.echo(f"Warning: {lookups_failed}: {problem}", err=True)


def _labels_after(metadata: JSONObject, own: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a namespace after ``kubectl apply`` of a manifest with its ``own``.

    Source: ``k8s.io/kubectl/pkg/util/apply.go``, and the three-way merge of its patcher.
    """
    text = (metadata.get("annotations") or {}).get(_LAST_APPLIED, "{}")
    try:
        last = msgspec.json.decode(text, type=_Manifest).metadata.labels
    except INVALID:
        last = None
    live = (metadata.get("labels") or {}).items()
    return {key: value for key, value in live if key not in (last or {})} | dict(own)
