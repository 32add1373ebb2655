"""A control plane that waits passes calls on to the one that acts, over HTTP and WebSockets.

Who calls, and from where, is judged by the one that acts: the call arrives there as it came,
with the cluster's token beside it, so that the address which the passing one has seen is believed.
A call that was passed on is passed on to nobody.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import (
    ClientConnectionError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    WSMsgType,
    WSServerHandshakeError,
    web,
)
from aiohttp.typedefs import Middleware
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.requests import Handler
from hotplate.platform.errors import NoLeader

PASSED_BY = "X-Hotplate-Passed-By"
"""The cluster's token, of the control plane that passes a call on."""
PASSED_FROM = "X-Hotplate-Passed-From"
"""The address that it was called from."""
PASSED_SCHEME = "X-Hotplate-Passed-Scheme"
OF_A_CONNECTION = (
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)
"""RFC 9110, section 7.6.1, and what RFC 2616 had beside."""
OF_A_HANDSHAKE = "sec-websocket-"
CONNECT_S = 3.0
HEARTBEAT_S = 20.0

log = logging.getLogger("hotplate.api")


class PassingOn:
    """Passes calls on, one by one as they come."""

    def __init__(self, leader: Callable[[], str], token: str) -> None:
        """`leader` is the URL of the control plane that acts now; empty = none does."""
        self._leader = leader
        self._token = token
        self._session: ClientSession | None = None
        self._under_way: set[asyncio.Timeout] = set()

    def cut(self) -> None:
        """Whoever acts is another one now: what is under way is not answered any more."""
        now = asyncio.get_running_loop().time()
        for limit in self._under_way:
            limit.reschedule(now)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any call. Raises NoLeader."""
        if passed_from(request, self._token) is not None:
            raise NoLeader(
                "the control plane that acted a moment ago no longer does; try again in a moment"
            )
        url = self._leader()
        if not url:
            raise NoLeader("no control plane acts at this moment; one will within seconds")
        target = URL(url.rstrip("/") + request.rel_url.raw_path_qs, encoded=True)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._pass_socket(request, target)
        return await self._pass_call(request, target)

    async def _pass_call(self, request: web.Request, target: URL) -> web.StreamResponse:
        body = request.content if request.can_read_body else None
        response: web.StreamResponse | None = None
        try:
            async with (
                self._limited(),
                self._http().request(
                    request.method,
                    target,
                    headers=self._headers(request),
                    data=body,
                    allow_redirects=False,
                ) as answer,
            ):
                response = web.StreamResponse(
                    status=answer.status, reason=answer.reason, headers=_passed(answer.headers)
                )
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
        except (ClientError, TimeoutError) as error:
            if response is not None:  # the caller has to see that this is not all
                raise ConnectionResetError(f"the answer was cut: {error!r}") from error
            raise NoLeader(f"the control plane that acts does not answer ({error!r})") from error
        return response

    async def _pass_socket(self, request: web.Request, target: URL) -> web.StreamResponse:
        try:
            async with (
                self._limited(),
                self._http().ws_connect(
                    target,
                    headers=self._headers(request),
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=0,
                ) as theirs,
            ):
                ours = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=0)
                await ours.prepare(request)
                await _join(ours, theirs)
                return ours
        except WSServerHandshakeError as error:
            message = f"the control plane that acts refuses the WebSocket: {error.message}"
            return http_errors.response(error.status, "refused", message)
        except (ClientError, TimeoutError) as error:
            raise NoLeader(f"the control plane that acts does not answer ({error!r})") from error

    def _headers(self, request: web.Request) -> CIMultiDict[str]:
        headers = _passed(request.headers)
        for name in (PASSED_BY, PASSED_FROM, PASSED_SCHEME, "Expect"):
            headers.popall(name, None)
        headers[PASSED_BY] = self._token
        headers[PASSED_FROM] = request.remote or ""
        headers[PASSED_SCHEME] = request.scheme
        return headers

    def _http(self) -> ClientSession:
        if self._session is None:
            # Answers come as they are made, and a held question is one of a minute and more.
            limit = ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._session = ClientSession(timeout=limit, auto_decompress=False)
        return self._session

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Until `cut`. Raises TimeoutError."""
        async with asyncio.timeout(None) as limit:
            self._under_way.add(limit)
            try:
                yield
            finally:
                self._under_way.discard(limit)


def believe_passed(token: str) -> Middleware:
    """Of the control plane that acts: a call that another one has passed on came from where that
    one says."""

    @web.middleware
    async def believe(request: web.Request, handler: Handler) -> web.StreamResponse:
        address = passed_from(request, token)
        if address is None:
            return await handler(request)
        scheme = request.headers.get(PASSED_SCHEME, request.scheme)
        return await handler(request.clone(remote=address, scheme=scheme))

    return believe


def passed_from(request: web.Request, token: str) -> str | None:
    """From where a call came that another control plane has passed on; None = none has."""
    given = request.headers.get(PASSED_BY, "").encode(errors="surrogateescape")
    if not token or not hmac.compare_digest(given, token.encode()):
        return None
    return request.headers.get(PASSED_FROM, "")


async def _join(ours: web.WebSocketResponse, theirs: ClientWebSocketResponse) -> None:
    """Pass messages on both ways until either side has ended."""
    ways = [
        asyncio.create_task(_pump(ours, theirs)),
        asyncio.create_task(_pump(theirs, ours)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await theirs.close()
        await ours.close(code=theirs.close_code or 1001)


async def _pump(
    source: web.WebSocketResponse | ClientWebSocketResponse,
    target: web.WebSocketResponse | ClientWebSocketResponse,
) -> None:
    try:
        async for message in source:
            if message.type is WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await target.send_bytes(message.data)
    except (ConnectionError, ClientConnectionError) as error:
        log.info("a WebSocket that was passed on has ended: %s", error)


def _passed(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The lines that are for the other end, and not for the next one."""
    named = {
        name.strip().lower()
        for line in headers.getall("Connection", [])
        for name in line.split(",")
    } | {name.lower() for name in OF_A_CONNECTION}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in named and not name.lower().startswith(OF_A_HANDSHAKE)
    )
