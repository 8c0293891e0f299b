"""A webhook that responds with constants, except for the uid: the cost of HTTP alone.

`python -m bench.constant DIRECTORY PORT MUTATE VALIDATE`: DIRECTORY holds tls.crt and tls.key;
MUTATE and VALIDATE are files with the responses. It serves HTTP and TLS as gpufence does.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web

_NOTHING = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"',
    b'","allowed":true}}',
)
_UID = re.compile(rb'"uid":"([^"]+)"')


def app(responses: dict[str, bytes]) -> web.Application:
    application = web.Application(client_max_size=8 * 1024 * 1024)
    for path, response in responses.items():
        before, uid, after = response.partition(_uid(response))
        application.router.add_post(path, _handler(before, after))
        assert uid, f"the response for {path} has no uid"
    return application


def _handler(before: bytes, after: bytes) -> web.Handler:  # type: ignore[name-defined]
    async def respond(request: web.Request) -> web.Response:
        body = await request.read()
        # The constant is the response to a GPU Pod. Its patch fits no other Pod.
        parts = (before, after) if b"nvidia.com/gpu" in body else _NOTHING
        return web.Response(body=_uid(body).join(parts), content_type="application/json")

    return respond


def _uid(body: bytes) -> bytes:
    match = _UID.search(body)
    assert match is not None
    return match[1]


async def serve(directory: Path, port: int, responses: dict[str, bytes]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    runner = web.AppRunner(app(responses), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    certificates, number, mutate, validate = sys.argv[1:]
    constant = {"/mutate": Path(mutate).read_bytes(), "/validate": Path(validate).read_bytes()}
    uvloop.run(serve(Path(certificates), int(number), constant))
