"""What a process remembers of objects: short names alone, because their authors choose them."""

from __future__ import annotations

import sys
from contextlib import suppress

from policies.engine import mutate, validate
from policies.kubernetes.objects import MalformedObjectError
from policies.policy import Policy
from reviewing import default_policy, gpu_pod

LONG = 100_000


def test_no_long_text_of_an_object_is_kept() -> None:
    policy = default_policy()
    places = ("image", "env", "quantity", "resource", "label", "value", "taint", "path", "host")
    texts = {place: f"{place}/" + "a" * LONG for place in places}
    texts["quantity"] = " " * LONG + "1"
    before = {place: sys.getrefcount(text) for place, text in texts.items()}
    for place in places:
        with suppress(MalformedObjectError):
            _decide(place, texts[place], policy)
    kept = {place for place, text in texts.items() if sys.getrefcount(text) > before[place]}
    assert kept == set()


def _decide(place: str, text: str, policy: Policy) -> None:
    pod = gpu_pod()
    spec = pod["spec"]
    container = spec["containers"][0]
    resources = container["resources"]
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    match place:
        case "image":
            container["image"] = text
        case "env":
            container["env"] = [{"name": text, "value": text}]
        case "quantity":
            resources["limits"]["nvidia.com/gpu"] = resources["requests"]["cpu"] = text
        case "resource":
            resources["limits"][text] = "1"
        case "label":
            spec["nodeSelector"] = {text: "a"}
            expression["key"] = text
        case "value":
            spec["nodeSelector"] = {"zone": text}
            expression["values"] = [text]
        case "taint":
            spec["tolerations"] = [{"key": text, "operator": "Exists"}]
        case "path":
            spec["volumes"] = [{"name": "host", "hostPath": {"path": text}}]
        case "host":
            spec["nodeName"] = text
    if place in ("label", "value"):
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    mutate(pod, policy)
    validate(pod, policy)
