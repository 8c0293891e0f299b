"""What else API servers call for Pods: another release of gpufence, and webhooks of others."""

from __future__ import annotations

from collections.abc import Iterator

from policies.api_servers import IN_TREE_RULES
from policies.kubernetes.objects import JSONObject, mapping
from webhook.controller.text.objects import BINDING_KIND, LABELS, POLICY_KIND, all_names
from webhook.registered import KINDS, is_own
from webhook.tools.doctor import DoctorLine, fail, ok
from webhook.tools.doctor.installation import Installation
from webhook.tools.doctor.registered import GUARDS

_ENDINGS = tuple(f"-{rule}" for rule in IN_TREE_RULES)
"""How the names of admission policies end that are gpufence's, also if they lost their labels."""


def webhooks(installed: Installation) -> Iterator[DoctorLine]:
    """Report webhooks that reject each Pod because nothing answers, and those after gpufence."""
    for configuration, webhook, why in installed.unserved:
        yield fail(
            f"webhook {webhook.get('name')} of {configuration} fails closed for Pods, and {why}: "
            "API servers reject the Pods that it matches",
            f"Run kubectl delete {configuration} --ignore-not-found, or install what serves it",
        )
    later = [
        name
        for name, each in installed.live.get("MutatingWebhookConfiguration", {}).items()
        if name > installed.name and not _is_own(each) and each.get("webhooks")
    ]
    if later:
        yield ok(f"called after gpufence, and may change what it completed: {', '.join(later)}")


def releases(installed: Installation) -> Iterator[DoctorLine]:
    """Report what another release, or a remainder of one, changes and denies."""
    own = {installed.name, *all_names(installed.name)}
    own |= {f"{installed.name}-{guard}" for guard in GUARDS}
    found: dict[str, list[str]] = {}
    for kind, objects in installed.live.items():
        for name, each in objects.items():
            if kind != BINDING_KIND and name not in own and _is_own(each):
                found.setdefault(kind, []).append(name)
    for kind, names in found.items():
        kinds = kind if kind in KINDS else f"{POLICY_KIND},{BINDING_KIND}"
        yield fail(
            f"{kind} {', '.join(names)} is of another release of gpufence, and denies or changes "
            "the same Pods",
            f"Run kubectl delete {kinds} {' '.join(names)} --ignore-not-found. If the release is "
            "installed, uninstall it instead (helm uninstall)",
        )


def _is_own(obj: JSONObject) -> bool:
    """Return whether an object is of a release of gpufence, whichever."""
    metadata = obj["metadata"]
    return (
        LABELS.items() <= mapping(metadata.get("labels")).items()
        or any(is_own(webhook.get("name")) for webhook in obj.get("webhooks") or ())
        or ("webhooks" not in obj and metadata["name"].endswith(_ENDINGS))
    )
