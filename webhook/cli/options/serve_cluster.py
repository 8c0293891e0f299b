"""Options of ``gpufence serve`` about its cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from webhook.cli.options.cluster import access, is_inside, kubeconfig_option
from webhook.cli.options.common import valid_name
from webhook.cli.options.registration import registration_options
from webhook.cli.options.times import parse_duration
from webhook.documents.errors import InputError

if TYPE_CHECKING:
    from certs.names import Names
    from webhook.registration.configurations import Registration
    from webhook.registration.controller import ControllerOptions

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _owner(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
    from webhook.registration.registrar import Owner

    try:
        return None if value is None else Owner.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _duration(name: str, default: str, text: str) -> Callable[..., Any]:
    return click.option(
        name, callback=parse_duration, default=default, show_default=True, metavar="TIME", help=text
    )


_OPTIONS = (
    click.option(
        "--register",
        type=click.BOOL,
        default=None,
        metavar="true|false",
        help="Write the webhook configurations. The default is true inside a cluster. With false, "
        "apply the output of gpufence manifests.",
    ),
    click.option(
        "--admission-policies/--no-admission-policies",
        default=True,
        help="Whether to write ValidatingAdmissionPolicies as well, which API servers evaluate "
        "without a replica. Without, those of before are deleted.",
    ),
    kubeconfig_option,
    click.option(
        "--namespace",
        callback=valid_name,
        metavar="NAME",
        help="Namespace of Lease and Secret. The default is the service account's namespace.",
    ),
    click.option(
        "--owner",
        callback=_owner,
        metavar="KIND/NAME",
        help="Cluster-scoped object of the release that owns the configurations, for example "
        "clusterrole/gpufence. They are deleted with it.",
    ),
    click.option(
        "--secret",
        default="gpufence-certificates",
        show_default=True,
        callback=valid_name,
        metavar="NAME",
        help="Secret with the CA and the certificate. Not used with --tls-cert.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="CA of --tls-cert (PEM), for the configurations. Without it, another controller "
        "writes the CA, for example cert-manager's injector.",
    ),
    click.option(
        "--device-metrics/--no-device-metrics",
        default=False,
        help="Export metrics of the devices that nodes offer and that Pods and claims hold. Only "
        "the leader exports them; with --register=false, every replica does.",
    ),
    _duration("--certificate-lifetime", "8760h", "Lifetime of the certificate; renewed after 2/3."),
    _duration("--ca-lifetime", "87600h", "Lifetime of the CA; replaced after 2/3."),
    _duration(
        "--ca-propagation-delay",
        "30s",
        "Time that configurations trust a new CA before it is used.",
    ),
    _duration("--ca-overlap", "1h", "Time that a replaced CA stays trusted."),
    click.option(
        "--poll-seconds",
        type=click.FloatRange(min=0.1),
        default=5.0,
        show_default=True,
        help="Interval at which gpufence checks Secret, Lease and configurations.",
    ),
    click.option(
        "--lease-seconds",
        type=click.IntRange(min=2),
        default=15,
        show_default=True,
        help="Time after which another replica leads if the leader does not renew the Lease.",
    ),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets three arguments.

    ``controller`` is None if the replica writes nothing to a cluster, ``facts`` if it reads no
    cluster facts, and ``devices`` if it counts no devices.
    """

    @functools.wraps(command)
    def with_cluster(tls_cert: Path | None, tls_key: Path | None, **values: Any) -> Any:
        if (tls_cert is None) != (tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key need each other.")
        from certs.errors import CertificateError

        own = {name: values.pop(name) for name in _NAMES}
        try:
            controller = _read(files=tls_cert is not None, **own)
        except CertificateError as error:
            raise InputError([str(error)]) from error
        to_cluster = access(own["kubeconfig"])
        has_cluster = controller is not None or own["kubeconfig"] is not None or is_inside()
        facts = to_cluster if has_cluster and own["registration"].with_nodes else None
        devices = to_cluster if own["device_metrics"] else None
        return command(
            tls_cert=tls_cert,
            tls_key=tls_key,
            controller=controller,
            facts=facts,
            devices=devices,
            timeout_seconds=own["registration"].timeout_seconds,
            **values,
        )

    decorated: Callable[..., Any] = registration_options(with_cluster)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_NAMES = (
    *("registration", "register", "kubeconfig", "namespace", "owner", "secret", "ca_file"),
    *("certificate_lifetime", "ca_lifetime", "ca_propagation_delay", "ca_overlap"),
    *("poll_seconds", "lease_seconds", "device_metrics", "admission_policies"),
)


def _read(
    *, files: bool, registration: Registration, register: bool | None, **values: Any
) -> ControllerOptions | None:
    register = is_inside() if register is None else register
    if files and not register:
        return None
    if not registration.is_addressed:
        raise click.UsageError(
            "Specify how API servers reach gpufence: --service NAMESPACE/NAME or --url URL. To "
            "serve without a cluster, use --tls-cert, --tls-key and --register=false."
        )
    from certs.secret import Timing
    from webhook.registration.certificates import SecretName
    from webhook.registration.controller import ControllerOptions
    from webhook.registration.leader_election import LeaseTiming

    namespace = values["namespace"] or _own_namespace(registration)
    return ControllerOptions(
        load=access(values["kubeconfig"]),
        namespace=namespace,
        registration=registration,
        register=register,
        admission_policies=values["admission_policies"],
        owner=values["owner"],
        secret=None if files else SecretName(namespace, values["secret"]),
        names=None if files else names_of(registration),
        timing=Timing(
            authority=values["ca_lifetime"],
            leaf=values["certificate_lifetime"],
            settle=values["ca_propagation_delay"],
            overlap=values["ca_overlap"],
        ),
        lease=LeaseTiming(duration=values["lease_seconds"]),
        ca_file=values["ca_file"],
        poll_seconds=values["poll_seconds"],
    )


def names_of(registration: Registration) -> Names:
    """Return the names in the certificate: those by which API servers call gpufence."""
    from certs.names import Names

    if registration.service is not None:
        namespace, name, _ = registration.service
        return Names.parse([f"{name}.{namespace}.svc"])
    host = urlsplit(registration.url).hostname or ""
    is_address = ":" in host or host.replace(".", "").isdecimal()
    return Names.parse([], [host]) if is_address else Names.parse([host])


def _own_namespace(registration: Registration) -> str:
    try:
        return (_SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return registration.service[0] if registration.service else "gpufence-system"
