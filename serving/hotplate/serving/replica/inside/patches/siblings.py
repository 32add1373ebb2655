"""How a service calls the others of its revision; runs in the replica (Python >= 3.9).

Their addresses accept only requests with the revision's secret. It is the password in the URLs that
the replica gets for them: HTTP clients of any program make `Authorization: Basic` of it. In the
replica's own processes the HTTP libraries that services use send it in a field of its own and take
it out of the URL: so a caller's own `Authorization` is passed along, and no log has the secret.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

USER = "hotplate"
FIELD = "Hotplate-Secret"
HIDDEN = "***"
_HTTPX = ("httpx", "httpx2")
"""Libraries with the same code: what is written here for httpx applies to both."""
_LOOPBACK = {"localhost": "127.0.0.1"}


def calling_url(address: str, secret: str) -> str:
    """The URL of a service for its callers; `address` is HOST or HOST:PORT."""
    return f"http://{USER}:{secret}@{address}" if secret else f"http://{address}"


def _place(host: str | None, port: int | None) -> tuple[str, int]:
    """Whom requests are for: libraries name the port that nobody has written, or do not."""
    return _LOOPBACK.get(host or "", host or ""), port or 80


class Siblings:
    """The sibling services that one service calls."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        """`urls`, by name, are as `calling_url` makes them."""
        self._secrets: dict[tuple[str, int], str] = {}
        self._signing: set[str] = set()
        """Libraries that send the secret in a field by now."""
        for url in urls.values():
            parts = urlsplit(url)
            self._secrets[_place(parts.hostname, parts.port)] = parts.password or ""

    @property
    def any(self) -> bool:
        """Whether the service calls any."""
        return bool(self._secrets)

    def secret_of(self, host: str | None, port: int | None) -> str:
        """The secret for the server at this address; "" = none."""
        return self._secrets.get(_place(host, port), "")

    def include(self, url: str) -> bool:
        """Whether the URL leads to one of them."""
        parts = urlsplit(url)
        return parts.scheme == "http" and _place(parts.hostname, parts.port) in self._secrets

    def sign_requests(self) -> None:
        """Have this process's requests to them carry the secret, by the libraries that are imported
        by now. To be called again once there may be more; what is imported later does as other
        programs do."""
        ways = {
            "http.client": self._sign_standard_library,
            "requests": self._bare_requests,
            "aiohttp": self._sign_aiohttp,
            **dict.fromkeys(_HTTPX, self._sign_httpx),
        }
        for name, sign in ways.items():
            if name in sys.modules and name not in self._signing:
                self._signing.add(name)
                sign(sys.modules[name])

    def hide_secrets(self) -> None:
        """Have no line of a log tell one: a library may log its URLs."""
        secrets = [secret for secret in set(self._secrets.values()) if secret]
        kind: Any = logging.LogRecord
        stock = kind.getMessage

        def told(record: Any) -> str:
            message: str = stock(record)
            for secret in secrets:
                message = message.replace(secret, HIDDEN)
            return message

        kind.getMessage = told

    def _sign_standard_library(self, _: Any) -> None:
        """Signs requests of `http.client`, on which `urllib`, urllib3 and requests are built."""
        kind: Any = HTTPConnection
        split, begin, put = kind._get_hostport, kind.putrequest, kind.putheader

        def hostport(connection: Any, host: str, port: int | None) -> Any:
            return split(connection, host.rpartition("@")[2], port)

        def putrequest(connection: Any, *args: Any, **kwargs: Any) -> None:
            begin(connection, *args, **kwargs)
            if secret := self.secret_of(connection.host, connection.port):
                put(connection, FIELD, secret)

        def putheader(connection: Any, name: Any, *values: Any) -> None:
            if (
                name == "Host" and values and "@" in str(values[0])
            ):  # of urllib, which splits no URL
                values = (str(values[0]).rpartition("@")[2],)
            put(connection, name, *values)

        kind._get_hostport, kind.putrequest, kind.putheader = hostport, putrequest, putheader

    def _bare_requests(self, requests: Any) -> None:
        kind = requests.PreparedRequest
        stock = kind.prepare_url

        def prepare_url(request: Any, *args: Any, **kwargs: Any) -> None:
            stock(request, *args, **kwargs)
            parts = urlsplit(request.url)
            if self.secret_of(parts.hostname, parts.port):
                request.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

        kind.prepare_url = prepare_url

    def _sign_httpx(self, httpx: Any) -> None:
        def bare(request: Any) -> Any:
            if request.url.userinfo and self.secret_of(request.url.host, request.url.port):
                request.url = request.url.copy_with(userinfo=b"")
            return request

        def signed(request: Any) -> Any:
            """Signs each request by itself: the field must not be sent where a request is
            redirected to."""
            request.headers.pop(FIELD, None)
            if secret := self.secret_of(request.url.host, request.url.port):
                request.headers[FIELD] = secret
            return request

        client, waiting = httpx.Client, httpx.AsyncClient
        transport, waiting_transport = httpx.HTTPTransport, httpx.AsyncHTTPTransport
        send, send_async = client.send, waiting.send
        handle, handle_async = transport.handle_request, waiting_transport.handle_async_request
        client.send = lambda self, request, **rest: send(self, bare(request), **rest)
        waiting.send = lambda self, request, **rest: send_async(self, bare(request), **rest)
        transport.handle_request = lambda self, request: handle(self, signed(request))
        waiting_transport.handle_async_request = lambda self, request: handle_async(
            self, signed(request)
        )

    def _sign_aiohttp(self, aiohttp: Any) -> None:
        ask, send = aiohttp.ClientSession._request, aiohttp.ClientRequest.send

        async def asked(session: Any, method: str, url: Any, **rest: Any) -> Any:
            whole = session._build_url(url)
            if whole.user and self.secret_of(whole.host, whole.port):
                url = whole.with_user(None)
            return await ask(session, method, url, **rest)

        async def sent(request: Any, connection: Any) -> Any:
            secret = self.secret_of(request.url.host, request.url.port)
            if not secret:
                return await send(request, connection)
            request.headers[FIELD] = secret
            try:
                return await send(request, connection)
            finally:  # its errors show what a request had
                request.headers.pop(FIELD, None)

        aiohttp.ClientSession._request, aiohttp.ClientRequest.send = asked, sent
