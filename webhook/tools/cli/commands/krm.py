"""``gpufence krm``: a KRM function, for kustomize and kpt.

Source: the KRM Functions Specification, ``config.kubernetes.io/v1``
(``cmd/config/docs/api-conventions/functions-spec.md`` of kubernetes-sigs/kustomize).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from policies.facts import Request
from policies.finding import Action
from policies.kubernetes.objects import JSONObject, descend, mapping
from policies.kubernetes.template import field_path
from policies.policy import Policy
from webhook.tools.cli.commands import EXIT_FOUND
from webhook.tools.cli.commands.mutate import mutated_documents, report_denied, write_documents
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.options import PolicyChoice, policy_option
from webhook.tools.cli.report.content import paragraph
from webhook.tools.documents.document import Document, InputError
from webhook.tools.documents.files import STDIN, STDIN_NAME, load_documents
from webhook.tools.documents.objects import read_objects
from webhook.tools.documents.policy_files import load_policy

MODES = ("mutate", "check")
MODE_ANNOTATION = "gpufence.dev/mode"
"""Sets the mode in a functionConfig that is a policy, which has no field for it."""

KIND = "ResourceList"
GROUP = "config.kubernetes.io"

_LOCAL_CONFIG = f"{GROUP}/local-config"
# kyaml sets the first. The second is in the specification, and older orchestrators set it.
_PATH_ANNOTATIONS = (f"internal.{GROUP}/path", f"{GROUP}/path")
_INDEX_ANNOTATIONS = (f"internal.{GROUP}/index", f"{GROUP}/index")
_OPTIONS = ("mode", "namespace", "policy")
_SEVERITIES: dict[Action, str] = {"enforce": "error", "warn": "warning", "audit": "info"}


@click.command(
    epilog="""\b
Exit status:
  0  no enforced findings
  1  enforced findings, in the results and on standard error
  2  invalid input or usage; nothing is printed

\b
In a kustomization, under transformers:, a file with
  apiVersion: v1
  kind: ConfigMap
  metadata:
    name: gpufence
    annotations:
      config.kubernetes.io/function: |
        exec: {path: gpufence, args: [krm]}
  data:
    mode: mutate


With mode: check, the function reports findings and changes nothing. Put it under transformers: as
well: kustomize accepts no functions under validators: (kubernetes-sigs/kustomize issue 5036).

\b
Examples:
  kustomize build --enable-alpha-plugins --enable-exec .
  kpt fn eval --exec "gpufence krm" package/ -- mode=check
""",
)
@policy_option
@click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    help="Namespace of objects that do not set one, unless the functionConfig sets it. The default "
    "is default.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="Whether to mutate the items, or only to report findings, unless the functionConfig sets "
    "it. The default is mutate.",
)
def krm(policy_choice: PolicyChoice, namespace: str | None, mode: str | None) -> int:
    """Run as a KRM function: read a ResourceList from standard input, and print it.

    gpufence mutates Pods and workloads as the webhook does, and adds its findings to the results of
    the list. The functionConfig is a FencePolicy, with the annotation gpufence.dev/mode to set the
    mode, or a ConfigMap whose data may set mode, namespace and policy (a path). kustomize and kpt
    keep the comments; this command alone does not.
    """
    document = _read()
    config = document.value.get("functionConfig")
    options = _options(config)
    policy = _policy(config) or _policy_file(options.get("policy"), policy_choice)
    manifests = [
        manifest
        for manifest in read_objects(document)
        if _annotations(manifest.value).get(_LOCAL_CONFIG) != "true"
    ]
    where = options.get("namespace") or namespace or "default"
    request = Request(namespace=where, today=datetime.now(UTC).date())
    results = list(evaluate(manifests, policy, request))
    output = document.value
    if (options.get("mode") or mode or "mutate") == "mutate":
        output = next(mutated_documents(results), output)
    entries = [entry for result in results for entry in _entries(result)]
    # In the format of the input, as the specification recommends.
    write_documents([output | {"results": entries}], as_json=document.text.lstrip().startswith("{"))
    status = report_denied(results)
    return EXIT_FOUND if any(result.error for result in results) else status


def _read() -> Document:
    """Return the ResourceList on standard input.

    Raises:
        InputError: standard input is not a ResourceList.
    """
    documents = load_documents(STDIN)
    if len(documents) == 1 and _is_resource_list(documents[0].value):
        return documents[0]
    cure = "For files, use gpufence check and gpufence mutate"
    raise InputError([f"{STDIN_NAME} is not an object of kind {KIND} ({GROUP}/v1). {cure}."])


def _is_resource_list(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("kind") == KIND
        and str(value.get("apiVersion")).startswith(f"{GROUP}/")
        and isinstance(value.get("items"), list | None)
    )


def _options(config: Any) -> dict[str, str]:
    """Return the options that a functionConfig sets.

    Raises:
        InputError: it is of another kind, or sets something unknown.
    """
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise _problem("must be an object", "a ConfigMap or a FencePolicy")
    match config.get("kind"):
        case "ConfigMap":
            options = config.get("data") or {}
        case "FencePolicy":
            mode = _annotations(config).get(MODE_ANNOTATION)
            options = {} if mode is None else {"mode": mode}
        case kind:
            raise _problem(f"is of kind {kind!r:.60}", "a ConfigMap or a FencePolicy")
    if not isinstance(options, dict):
        raise _problem("has data that is not a mapping", ", ".join(_OPTIONS))
    for key, value in options.items():
        if key not in _OPTIONS:
            raise _problem(f"has the unknown option {key!r:.60} under data", ", ".join(_OPTIONS))
        if not isinstance(value, str):
            raise _problem(f"has an option {key} that is not a string", "a string in quotes")
    if (mode := options.get("mode", "mutate")) not in MODES:
        raise _problem(f"has the mode {mode!r:.60}", " or ".join(MODES))
    return options


def _policy(config: Any) -> Policy | None:
    """Return the policy that a functionConfig is; None if it is none.

    Raises:
        InputError: it is an invalid policy.
    """
    if config is None or config["kind"] != "FencePolicy":
        return None
    from policies.document import PolicyError, parse_policy

    # Orchestrators need metadata, which a policy does not have.
    document = {key: value for key, value in config.items() if key != "metadata"}
    try:
        return parse_policy(document)
    except PolicyError as error:
        raise InputError(
            f"the functionConfig is not a valid policy: {problem}." for problem in error.problems
        ) from error


def _policy_file(path: str | None, choice: PolicyChoice) -> Policy:
    """Return the policy of the file that the functionConfig names, or else the command line."""
    if path is None:
        choice.announce()
    if (path or choice.path) == STDIN:
        raise click.UsageError("The ResourceList is on standard input. Name a policy file.")
    return load_policy(path or choice.path)


def _problem(what: str, accepted: str) -> InputError:
    return InputError([f"the functionConfig {what}; accepted: {accepted}."])


def _entries(result: Result) -> Iterator[JSONObject]:
    """Yield a result as in the specification for an error, each finding, and each unjudged part."""
    named = {
        "apiVersion": result.api_version,
        "kind": result.kind,
        "name": result.name,
        "namespace": result.namespace,
    }
    reference = {key: value for key, value in named.items() if value}
    common: JSONObject = {"resourceRef": reference} | _file(result.manifest.value)
    if result.error is not None:
        problem = f"{result.error}. {result.error.cure}".rstrip()
        yield {"message": problem, "severity": "error"} | common
    for finding in result.findings:
        yield {
            "message": paragraph(finding),
            "severity": _SEVERITIES[finding.action],
            **common,
            "field": {"path": finding.path},
            "tags": {"rule": finding.rule, "action": finding.action},
        }
    for part in result.decision.unjudged:
        yield {
            "message": f"Unknown: {part.reason}. The webhook judges the Pods when they are "
            "created.",
            "severity": "info",
            **common,
            "field": {"path": field_path(part.path)},
        }


def _file(value: JSONObject | None) -> JSONObject:
    """Return the file of the object, if the orchestrator names it."""
    annotations = _annotations(value)
    path = next((annotations[name] for name in _PATH_ANNOTATIONS if name in annotations), None)
    if path is None:
        return {}
    index = next((annotations[name] for name in _INDEX_ANNOTATIONS if name in annotations), "0")
    is_index = re.fullmatch("[0-9]{1,9}", str(index))
    return {"file": {"path": path, "index": int(index) if is_index else 0}}


def _annotations(value: JSONObject | None) -> JSONObject:
    return mapping(descend(value, ("metadata", "annotations")))
