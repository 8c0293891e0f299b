"""The ``functionConfig`` of a ResourceList: a FencePolicy, or a ConfigMap with options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.documents.errors import InputError

Mode = Literal["mutate", "check"]
MODES: tuple[Mode, ...] = get_args(Mode)
MODE_ANNOTATION = "gpufence.dev/mode"
"""Sets the mode in a functionConfig that is a policy, which has no field for it."""

_OPTIONS = ("mode", "namespace", "policy")


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """The settings of a functionConfig; ``None`` for those that are not set."""

    mode: Mode | None = None
    namespace: str | None = None
    policy_path: str | None = None
    policy: Policy | None = None
    """The functionConfig itself, if it is a policy."""


def read_function_config(config: Any) -> FunctionConfig:
    """Parse a functionConfig.

    Raises:
        InputError: it is of another kind, or sets something unknown.
    """
    if config is None:
        return FunctionConfig()
    if not isinstance(config, dict):
        raise _problem("must be an object", "a ConfigMap or a FencePolicy")
    match config.get("kind"):
        case "ConfigMap":
            return _options(config.get("data") or {})
        case "FencePolicy":
            return FunctionConfig(mode=_annotated_mode(config), policy=_policy(config))
        case kind:
            raise _problem(f"is of kind {kind!r:.60}", "a ConfigMap or a FencePolicy")


def _options(data: Any) -> FunctionConfig:
    if not isinstance(data, dict):
        raise _problem("has data that is not a mapping", ", ".join(_OPTIONS))
    for key, value in data.items():
        if key not in _OPTIONS:
            raise _problem(f"has the unknown option {key!r:.60} under data", ", ".join(_OPTIONS))
        if not isinstance(value, str):
            raise _problem(f"has an option {key} that is not a string", "a string in quotes")
    return FunctionConfig(_mode(data.get("mode")), data.get("namespace"), data.get("policy"))


def _annotated_mode(config: JSONObject) -> Mode | None:
    metadata = config.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return _mode(annotations.get(MODE_ANNOTATION) if isinstance(annotations, dict) else None)


def _mode(value: Any) -> Mode | None:
    if value is not None and value not in MODES:
        raise _problem(f"has the mode {value!r:.60}", " or ".join(MODES))
    return cast("Mode | None", value)


def _policy(config: JSONObject) -> Policy:
    from policies.document import PolicyError, parse_policy

    # Orchestrators need metadata, which a policy does not have.
    document = {key: value for key, value in config.items() if key != "metadata"}
    try:
        return parse_policy(document)
    except PolicyError as error:
        raise _problems(error.problems) from error


def _problem(what: str, accepted: str) -> InputError:
    return InputError([f"the functionConfig {what}; accepted: {accepted}."])


def _problems(problems: Iterable[str]) -> InputError:
    return InputError(
        f"the functionConfig is not a valid policy: {problem}." for problem in problems
    )
