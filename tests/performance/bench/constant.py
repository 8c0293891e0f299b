"""A webhook that reads the body and sends back a constant but for the uid: what HTTP alone costs.

`python -m bench.constant DIRECTORY PORT MUTATE VALIDATE`, where DIRECTORY holds tls.crt and
tls.key, and the last two are files with the answers. It serves HTTP and TLS as gpufence does.
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


def app(answers: dict[str, bytes]) -> web.Application:
    made = web.Application(client_max_size=8 * 1024 * 1024)
    for path, answer in answers.items():
        before, uid, after = answer.partition(_uid(answer))
        made.router.add_post(path, _handler(before, after))
        assert uid, f"the answer for {path} has no uid"
    return made


def _handler(before: bytes, after: bytes) -> web.Handler:  # type: ignore[name-defined]
    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        # The constant is what a GPU Pod is answered, and no other can be changed like one.
        answered = (before, after) if b"nvidia.com/gpu" in body else _NOTHING
        return web.Response(body=_uid(body).join(answered), content_type="application/json")

    return answer


def _uid(body: bytes) -> bytes:
    found = _UID.search(body)
    assert found is not None
    return found[1]


async def serve(folder: Path, port: int, answers: dict[str, bytes]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    runner = web.AppRunner(app(answers), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    certificates, number, mutate, validate = sys.argv[1:]
    constant = {"/mutate": Path(mutate).read_bytes(), "/validate": Path(validate).read_bytes()}
    uvloop.run(serve(Path(certificates), int(number), constant))
