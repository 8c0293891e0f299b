"""Random pairs of policies that differ in few fields, and often in none that has an effect."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

from policies.document import PolicyError
from policies.policy import Policy
from policies.registry import RULES
from specs import policy_of
from webhook.tools.cli.policy_diff.fields import document

JSON = dict[str, Any]

_MODES = ("enforce", "warn", "audit")
_ACTIONS = (*_MODES, "off")
_PATTERNS = ("*", "de*", "default", "dev-*", "dev-1", "lab", "legacy", "ml", "team-*", "team-x")
_KINDS = ("Deployment", "Job", "Pod", "PyTorchJob")
_RULES = [rule.id for rule in RULES]
_SHADES: JSON = {
    "level": ("restricted", "baseline", "off"),
    "runAsUser": (1000, 65532, "none"),
    "runAsGroup": (1000, 2000),
    "fsGroup": (1000, 2000),
    "hostUsers": (False,),
    "home": ("1Gi", "2Gi"),
}
_VALUES: JSON = {
    **_SHADES,
    "mode": _MODES,
    "failurePolicy": ("Fail", "Ignore"),
    "action": ("warn", "enforce"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "unknown": ("allow", "deny"),
    "largestRequest": (1, 2, 8),
    "minDevices": (1, 2, 3),
    "maxCPUPerDevice": ("8", "16"),
    "maxRuntime": ("24h", "25h"),
    "pricePerDeviceHour": (1.5, 2.5),
    "runtimeClass": ("nvidia", "nvidia-cdi"),
    "reason": ("moves", "never moves"),
    "expires": ("2025-06-01", "2030-01-01"),
}


class Pairs:
    """Pairs of policies: parts of a base, changed in one or two places."""

    def __init__(self, base: JSON, seed: int) -> None:
        self._base, self._random = base, random.Random(seed)

    def one(self) -> tuple[Policy, Policy]:
        r = self._random
        while True:
            spec = deepcopy(self._base)
            spec["pools"] = r.sample(spec["pools"], r.randint(1, 3))
            spec["mode"] = r.choice(("enforce", *_MODES))
            spec["rules"] = {name: r.choice(_ACTIONS) for name in r.sample(_RULES, r.randint(0, 4))}
            if r.random() < 0.5:
                rarely_on = ("restricted-security-context", "needs-root", "pool-requirements")
                spec["rules"] |= dict.fromkeys((*rarely_on, "tolerated-device-taint"), "off")
            spec["hardening"] = self._hardening()
            spec["overrides"] = [self._override() for _ in range(r.randint(0, 3))]
            spec["exceptions"] = [self._exception() for _ in range(r.randint(0, 3))]
            try:
                old = policy_of(spec)
                new: Any = document(old)
                for _ in range(r.choice((1, 1, 1, 2))):
                    self._change(new)
                return old, policy_of(new)
            except PolicyError:
                continue

    def _change(self, spec: JSON) -> None:
        r = self._random
        match r.randrange(9):
            case 0:
                spec["overrides"].insert(r.randint(0, len(spec["overrides"])), self._override())
            case 1:
                spec["exceptions"].append(self._exception())
            case 2:
                spec["rules"][r.choice(_RULES)] = r.choice(_ACTIONS)
            case 3:
                r.choice(spec["pools"])["pricePerDeviceHour"] = r.choice((1.5, 2.5))
            case 4 if spec["overrides"]:
                # The same override for a name that its pattern covers, or twice.
                own = deepcopy(r.choice(spec["overrides"]))
                own["namespaces"] = [each.replace("*", "x") or "x" for each in own["namespaces"]]
                spec["overrides"].append(own)
            case 5:
                r.choice([spec, *spec["pools"]])["hardening"] = self._hardening()
            case _:
                self._change_a_leaf(spec)

    def _change_a_leaf(self, spec: JSON) -> None:
        """Change a value, remove one, or change the order of a list."""
        r = self._random
        place, key = r.choice([*_places(spec)])
        value = place[key]
        if isinstance(value, dict):
            place[key] = dict(r.sample([*value.items()], len(value)))
        elif isinstance(value, list):
            r.shuffle(value)
            if value and r.random() < 0.3:
                value.pop()
            elif r.random() < 0.3 and key in ("namespaces", "names", "kinds"):
                value.append(r.choice(_KINDS if key == "kinds" else _PATTERNS))
        elif key in _VALUES:
            place[key] = r.choice(_VALUES[key])
        elif r.random() < 0.2:
            del place[key]

    def _hardening(self) -> JSON:
        r = self._random
        return {name: r.choice(own) for name, own in _SHADES.items() if r.random() < 0.5}

    def _override(self) -> JSON:
        r = self._random
        own: JSON = {"namespaces": r.sample(_PATTERNS, r.randint(1, 2))}
        if r.random() < 0.5:
            own["mode"] = r.choice(_MODES)
        if r.random() < 0.5:
            own["rules"] = {r.choice(_RULES): r.choice(_ACTIONS)}
        if r.random() < 0.3 or len(own) == 1:
            own["hardening"] = self._hardening()
        return own

    def _exception(self) -> JSON:
        r = self._random
        return {
            "namespaces": r.sample(_PATTERNS, r.randint(1, 2)),
            "rules": r.sample(_RULES, r.choice((0, 1, 6))),
            "kinds": r.sample(_KINDS, r.choice((0, 1, 2))),
            "names": r.choice(([], ["old-*"], ["example"])),
            "reason": r.choice(_VALUES["reason"]),
            **({"expires": r.choice(_VALUES["expires"])} if r.random() < 0.3 else {}),
        }


def _places(part: Any) -> Any:
    """Yield each mapping of a document with each of its keys."""
    for key, value in part.items() if isinstance(part, dict) else ():
        yield part, key
        yield from _places(value)
    for value in part if isinstance(part, list) else ():
        yield from _places(value)
