"""A connection to one API server: JSON by GET, and the lines of a watch.

Credentials, TLS and proxies are the affair of ``kubernetes.aio``. Its model objects are not used:
to make one of a Node's watch event takes 0.85 ms, and to read the fields that matter 0.01 ms
(``tests/bench/cluster_facts.py``). It takes long to import, too, so that happens on first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from webhook.cluster.errors import UNAUTHORIZED, ApiError, UnreachableError
from webhook.cluster.wire import Status

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

    from webhook.cluster.access import Load

Query = Mapping[str, str]

_CONNECT_SECONDS = 10.0

_HEADERS = {
    "Accept": "application/json",
    # Compressing a long list costs both sides more than it saves on a cluster's own network.
    "Accept-Encoding": "identity",
}


class Connection:
    """Talks to the API server to which ``load`` knows the way.

    ``load`` is called before the first request, and again once the API server no longer accepts the
    credentials: files and plugins may have newer ones.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._client: ApiClient | None = None
        self._fresh = False
        self._connecting = asyncio.Lock()

    async def prepare(self) -> None:
        """Read the configuration, without asking the API server anything.

        Raises:
            ConfigurationError: it leads nowhere.
        """
        await self._connected()

    async def host(self) -> str:
        """Return where the API server is, as the configuration says.

        Raises:
            ConfigurationError: it leads nowhere.
        """
        return str((await self._connected()).configuration.host)

    async def get(self, path: str, query: Query | None = None, *, seconds: float) -> bytes:
        """Return the body of what stands at ``path``, within ``seconds``.

        Raises:
            ApiError: the API server refuses.
            UnreachableError: it does not answer, or not in time.
            ConfigurationError: there is no way to it.
        """
        limits = aiohttp.ClientTimeout(total=seconds)
        async with self._open(path, query or {}, limits) as response:
            return await response.read()

    @asynccontextmanager
    async def lines(
        self, path: str, query: Query, *, quiet_seconds: float
    ) -> AsyncIterator[AsyncIterable[bytes]]:
        """Open ``path``, and provide its lines as they come.

        A connection on which nothing comes for ``quiet_seconds`` counts as lost.

        Raises:
            ClusterError: as ``get`` does; from inside the block, too.
        """
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=quiet_seconds
        )
        async with self._open(path, query, limits) as response:
            yield response.content

    async def close(self) -> None:
        """Close what is open."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def _open(
        self, path: str, query: Query, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        client = await self._connected()
        method, url, headers, *_ = await client.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params=dict(_HEADERS),
            auth_settings=["BearerToken"],
        )
        try:
            answer = await client.call_api(method, url, headers, _request_timeout=limits)
            async with answer.response as response:
                if response.status >= 400:
                    self._fresh = self._fresh and response.status != UNAUTHORIZED
                    raise ApiError(response.status, _message(await response.read()))
                yield response
        except (aiohttp.ClientError, OSError) as error:
            what = str(error) or "nothing came in time"
            where = client.configuration.host
            raise UnreachableError(f"the API server at {where} is out of reach: {what}") from error

    async def _connected(self) -> ApiClient:
        """Return the client, with credentials that were good when they were last used."""
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect()
            elif not self._fresh:
                await self._load(self._client.configuration)
                _take_certificate(self._client)
            self._fresh = True
            return self._client

    async def _connect(self) -> ApiClient:
        from kubernetes.aio.client import ApiClient, Configuration

        configuration = Configuration()
        await self._load(configuration)
        # The authority is the cluster's own, and pinned. Python 3.13 asks more of authorities than
        # earlier versions did, and more than those of existing clusters fulfil.
        configuration.disable_strict_ssl_verification = True
        return ApiClient(configuration)


def _take_certificate(client: ApiClient) -> None:
    """Have new connections use the client certificate that is configured now."""
    configuration = client.configuration
    if configuration.cert_file:
        context = client.rest_client.ssl_context
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)


def _message(body: bytes) -> str:
    """Return what a Status says, or the beginning of whatever else was sent."""
    try:
        return msgspec.json.decode(body, type=Status).message
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace").strip()
