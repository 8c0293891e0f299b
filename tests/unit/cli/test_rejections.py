"""Command lines that cannot mean anything, and the errors that name what to write."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from running import PLAIN_POD, Run


def name_problem(name: str) -> str:
    """Return the reason for a name, which would become a part of the URL of a request."""
    return f"': {name!r} is not a valid name: use up to 253 lower-case letters, digits, '-' and '.'"


PAIR = "--tls-cert x --tls-key y"
SERVICE = "--service gpufence-system/gpufence"
SERVICE_FORM = "Write NAMESPACE/NAME or NAMESPACE/NAME:PORT"
URL_FORM = "Write https://HOST:PORT, without user, query"

REASONS = {
    "mutate": "Usage: gpufence",
    "check --output xml -": "Usage: gpufence",
    "chek": "Usage: gpufence",
    "--frobnicate": "Usage: gpufence",
    # Files of other kinds.
    "audit --since 5": "'5' is not a duration; write it like 24h, 90m or 1h30m",
    "policy validate web.yaml": "web.yaml:2: kind: is 'Pod', but must be 'FencePolicy'.",
    "check --nodes table.txt -": "It looks like a table of kubectl get: add -o yaml",
    "mutate https://example.com/a.yaml": "is a URL, not a file. Download it: curl -fsSL https://",
    "mutate lower.yaml": "lower.yaml:2:1: document 1: kind: is pod; did you mean Pod?",
    "mutate commented.json": "JSON has no comments: remove them, or write YAML.",
    "mutate comment.json": "JSON has no comments: remove them, or write YAML.",
    "audit --kubeconfig .": ".: is a directory; ",
    # Rules.
    "explain pool-tresspass": "pool-tresspass is neither a rule nor a file. Did you mean pool-tres",
    "explain leak": "leak is neither a rule nor a file. Did you mean device-leak",
    "explain Pool-Trespass": "Pool-Trespass is neither a rule nor a file. Did you mean pool-trespa",
    # Two readers of standard input.
    "check --nodes - -": "--nodes and the argument - both read standard input",
    "mutate --nodes - web.yaml -": "--nodes and the argument - both read standard input",
    "explain --nodes - -": "--nodes and the argument - both read standard input",
    "check --policy - -": "--policy and the argument - both read standard input",
    "check --policy - --nodes - web.yaml": "--policy and --nodes both read standard input",
    # A cluster.
    "check --nodes n --cluster pods.yaml": "--nodes and --cluster exclude each other",
    "check --context c pods.yaml": "--kubeconfig, --context and --fence-policy need --cluster",
    "check --kubeconfig k pods.yaml": "--kubeconfig, --context and --fence-policy need --cluster",
    # Reports.
    "check -o sarf -": "'sarf' is not a format of this report. Did you mean sarif?",
    "check -o sarif= -": "'sarif=' names no file. Write sarif=FILE.",
    "check -o text -o json -": "text and json both go to standard output. Write text=FILE.",
    "check -o json -o sarif=- -": "json and sarif both go to standard output. Write json=FILE.",
    "check -o json=a -o sarif=a -": "json and sarif both go to a. Name two files.",
    "check -o json=a -o sarif=./a -": "json and sarif both go to a. Name two files.",
    "check -o json=a -o sarif=link -": "json and sarif both go to a. Name two files.",
    "check -o text -o json=/dev/stdout -": "text and json both go to standard output. Write",
    # Names.
    **{
        f"{command} {option} '{name}'": name_problem(name)
        for command, option, *names in (
            ("doctor", "--namespace", "../../../apis", "a/../b"),
            ("doctor", "--name", "gpufence?watch=true", "gpufence?dryRun=All", ""),
            ("doctor", "--try-in", "Default", "a" * 254),
            ("controller", "--ca-secret", "a/b"),
            ("controller", "--name", "A"),
            ("controller", "--namespace", ".."),
            ("controller", "--namespace", "a/b"),
            ("controller", "--serving-secret", "a?b"),
            ("controller", "--name", "a/b"),
            ("controller", "--exclude-namespace", "a b"),
            ("audit", "--fence-policy", "a/b"),
            ("serve", "--fence-policy", ".."),
            (f"manifests {SERVICE}", "--name", "A"),
            (f"manifests {SERVICE}", "--exclude-namespace", "a b"),
        )
        for name in names
    },
    "manifests --cert-manager a/b/c": name_problem("b/c"),
    # Registration.
    "manifests --cert-manager a/b": "Specify how API servers reach gpufence",
    f"manifests {SERVICE}": "Specify the CA",
    f"manifests {SERVICE} --cert-manager b": "Write NAMESPACE/CERTIFICATE.",
    f"manifests {SERVICE} --url https://a --cert-manager a/b": "exclude each other",
    f"manifests {SERVICE} --annotation a": "Write KEY=VALUE",
    f"manifests {SERVICE} --ca-file missing.crt": "missing.crt: does not exist",
    f"manifests {SERVICE} --ca-file .": ".: cannot be read (Is a directory). Name a file",
    "manifests --static": "--static needs --admission-policies",
    "manifests --url http://a": "must begin with https://",
    **{
        f"manifests --service {service}": SERVICE_FORM
        for service in ("gpufence", "a/b:c", "a/b:65536", "a/b:0", "A/b")
    },
    **{
        f"manifests --url 'https://{rest}'": URL_FORM
        for rest in ("a/?timeout=1s", "a/#b", "a@b", "a:99999", "a b", "")
    },
    "controller": "Specify how API servers reach gpufence",
    f"controller {SERVICE} --owner deployment/a": "write KIND/NAME with one of clusterrole",
    f"controller {SERVICE} --certificate-lifetime soon": "'soon' is not a duration",
    "controller --url https://*.example:9443": "is neither a host name (RFC 1123) nor",
    f"controller {SERVICE} --host 203.0.113.7 --metrics-port 0": "cannot listen on 203.0.113.7",
    # Replicas.
    f"serve {PAIR}": "x: does not exist.",
    f"serve {PAIR} --policy nowhere.yaml": "nowhere.yaml: does not exist.",
    f"serve {PAIR} --port 70000": "70000 is not in the range",
}
"""The reason by command line."""
FILES = {
    "web.yaml": PLAIN_POD,
    "lower.yaml": PLAIN_POD.replace("Pod", "pod"),
    "table.txt": "NAME STATUS\nn1 Ready\n",
    "commented.json": '{"a": 1, // one\n"b": 2}',
    "comment.json": '// one\n{"a": 1}',
}


def test_a_command_line_is_rejected_with_the_reason(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "link").symlink_to("a")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    wrong = {}
    for command, reason in REASONS.items():
        done = gpufence(*shlex.split(command), stdin=PLAIN_POD)
        told = " ".join(done.err.split())
        if (done.status, done.out) != (2, "") or reason not in told or "Traceback" in told:
            wrong[command] = done
    assert wrong == {}
    assert {path.name for path in tmp_path.iterdir()} == {"link", *FILES}
