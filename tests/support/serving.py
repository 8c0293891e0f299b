"""Runs the server of `served_process.py`, with its options as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from certs.errors import CertificateError
from webhook.http.listener import ListenError
from webhook.server.replica import ServeOptions, serve

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    for key in ("tls_cert", "tls_key"):
        options[key] = Path(options[key])
    try:
        status = serve(ServeOptions(**options))
    except (CertificateError, ListenError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(status)
