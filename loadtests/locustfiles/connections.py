"""HTTP/1.1 to one server, over connections that are kept and used again.

Locust's own client follows redirects, sends a request again that may have run, and reads a stream
in blocks of a fixed size. `arrivals.py` wants none of that, and less work for each request. Sockets
are gevent's, as Locust replaces the standard library's.
"""

from __future__ import annotations

import errno
import math
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter as clock
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from gevent.monkey import get_original
from geventhttpclient.response import HTTPResponse

UNUSED_S = 4.0
"""How long an unused connection is kept. Servers close theirs after 5 s (uvicorn, Node.js) or
later, and a request that crosses the closing has no answer."""
BLOCK_BYTES = 65536
EXCERPT_BYTES = 4096
"""What is kept of a body whose pieces nobody takes."""
_UNQUOTED = "/?&=%:@!$'()*+,;~"

poll = get_original("select", "poll")


class Answer(HTTPResponse):  # type: ignore[misc]  # geventhttpclient has no types
    """The answer to one request, as its bytes arrive."""

    def __init__(self, on_piece: Callable[[Answer, bytes], None] | None) -> None:
        super().__init__("POST")
        self.received_at = 0.0
        """When the last bytes came, by `clock`."""
        self.first_byte_at = math.nan
        """When the first bytes of the body came."""
        self.excerpt = bytearray()
        self._on_piece = on_piece

    @property
    def succeeded(self) -> bool:
        return bool(200 <= self.status_code < 300)

    def _on_body(self, piece: bytearray) -> None:
        if math.isnan(self.first_byte_at):
            self.first_byte_at = self.received_at
        if self._on_piece is not None and self.succeeded:
            self._on_piece(self, bytes(piece))
        elif len(self.excerpt) < EXCERPT_BYTES:
            self.excerpt += piece


class _Unused(NamedTuple):
    connection: socket.socket
    since: float


class Connections:
    """As many to one server as there are requests at once; the last one used is used next."""

    def __init__(self, url: str) -> None:
        """Of `url` only scheme, host and port count. Raises ValueError if it has none."""
        where = urlsplit(url)
        if where.scheme not in ("http", "https") or not where.hostname:
            raise ValueError(f"{url!r} is no address; it must begin with http:// or https://")
        self._tls = ssl.create_default_context() if where.scheme == "https" else None
        self._host = where.hostname
        self._port = where.port or (443 if self._tls else 80)
        self._host_field = where.netloc.rpartition("@")[2]
        self._unused: deque[_Unused] = deque()

    def head(self, method: str, path: str, fields: Mapping[str, str]) -> bytes:
        """What `ask` sends before a body, but its length."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        first = f"{method} {quote(path, safe=_UNQUOTED)} HTTP/1.1\r\nHost: {self._host_field}\r\n"
        return (first + lines).encode()

    def ask(
        self,
        head: bytes,
        body: bytes = b"",
        on_piece: Callable[[Answer, bytes], None] | None = None,
    ) -> Answer:
        """Sends one request and reads its answer to the end. A redirect is an answer like others.

        `on_piece` gets the body of a successful answer piece by piece. Raises OSError where the
        connection fails or ends before the answer does, and HTTPException for what is no HTTP.
        """
        connection = self._sent(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        answer = Answer(on_piece)
        try:
            _read(connection, answer)
        except BaseException:  # also when interrupted: closed, and raised again
            connection.close()
            raise
        if answer.should_close():
            connection.close()
        else:
            self._keep(connection)
        return answer

    def _sent(self, request: bytes) -> socket.socket:
        """The connection on which the request is."""
        while (used := self._used()) is not None:
            try:
                sent = used.send(request)
            except OSError as error:
                used.close()
                # Nothing of it was taken, because the server had closed the connection.
                if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                    raise
            else:
                return _all_sent(used, request[sent:])
        return _all_sent(self._fresh(), request)

    def _used(self) -> socket.socket | None:
        """One that is open still; None = there is none."""
        while self._unused:
            connection, _ = self._unused.pop()
            if not _is_readable(connection):
                return connection
            connection.close()  # nothing was asked on it: the server has closed it
        return None

    def _keep(self, connection: socket.socket) -> None:
        now = clock()
        self._unused.append(_Unused(connection, now))
        while self._unused[0].since < now - UNUSED_S:
            self._unused.popleft().connection.close()

    def _fresh(self) -> socket.socket:
        connection = socket.create_connection((self._host, self._port))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                return self._tls.wrap_socket(connection, server_hostname=self._host)
        except BaseException:  # also when interrupted: closed, and raised again
            connection.close()
            raise
        return connection


def _all_sent(connection: socket.socket, rest: bytes) -> socket.socket:
    try:
        if rest:
            connection.sendall(rest)
    except (BrokenPipeError, ConnectionResetError):
        pass  # a server that wants no more of a body may have answered before it closed
    except BaseException:  # also when interrupted: closed, and raised again
        connection.close()
        raise
    return connection


def _is_readable(connection: socket.socket) -> bool:
    poller = poll()
    poller.register(connection.fileno(), select.POLLIN)
    return any(poller.poll(0))


def _read(connection: socket.socket, answer: Answer) -> None:
    while not answer.message_complete:
        block = connection.recv(BLOCK_BYTES)
        answer.received_at = clock()
        if not block and not answer.headers_complete:
            raise ConnectionError("the connection was closed before an answer")
        answer.feed(block)
        if not block and not answer.message_complete:
            raise ConnectionError("the connection was closed before the end of the answer")
