"""Pod with the RuntimeClass of GPUs that requests none."""

from __future__ import annotations

from collections.abc import Iterator

from policies.advice import is_base, of_copy, of_owner
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Container, Pod
from policies.reach import is_daemon_set_pod
from policies.vendors import vendor_of
from policies.vocabulary import agent_remediation, runtime_variables, variable_remediation
from policies.wording import capitalized, quote

ID = "unrequested-gpu-runtime"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the images of the Pod decide which devices the runtime shows.

    A container with the variable of the runtime shows what it says: device-leak reads it. In a
    GPU Pod, gpufence hides the devices from the other containers.
    """
    if context.device_requests:
        return
    name = pod.spec.runtime_class_name or ""
    handler = context.facts.runtime_classes.get(name, name)
    variable = runtime_variables(context.policy).get(handler, "")
    shown = [each.name for each in pod.containers if variable and _is_open(each, variable)]
    if not shown:
        return
    fix = "remove runtimeClassName"
    remediation = of_copy(pod, context) or of_owner(fix, pod)
    if is_daemon_set_pod(pod, context):
        remediation = agent_remediation(fix)
    elif is_base(pod):
        remediation = capitalized(fix)
    elif not remediation:
        remediation = variable_remediation(variable, context.policy, fix)
    containers = f"container{'s' if len(shown) > 1 else ''} {quote(shown)}"
    yield Finding(
        ID,
        pod.at("spec.runtimeClassName"),
        "a Pod takes the runtime of GPUs and requests no device",
        f"RuntimeClass {name} starts {containers} with the runtime {handler}, which shows every "
        f"device of the node to an image that sets {variable}, as most images for GPUs do",
        f"{remediation}. To keep the runtime without devices, set {variable} to void in "
        f"{containers}",
    )


def _is_open(container: Container, variable: str) -> bool:
    """Return whether the image decides: device plugins set the variable, and drivers of claims."""
    own = container.spec.resources
    resources = {*container.resources("limits"), *container.resources("requests")}
    return not (
        (own and own.claims)
        or any(each.name == variable for each in container.env)
        or any(map(vendor_of, resources))
    )
