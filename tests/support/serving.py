"""What `served_process.py` runs: the server in a process of its own, with its options as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from certs.errors import CertificateError
from reviewing import default_policy
from webhook.http.listener import ListenError
from webhook.server.options import ServeOptions
from webhook.server.policy_reload import FixedPolicy
from webhook.server.replica import serve

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for key in ("tls_cert", "tls_key"):
        given[key] = Path(given[key])
    try:
        status = serve(ServeOptions(policy=FixedPolicy(default_policy()), **given))
    except (CertificateError, ListenError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(status)
