"""Requests over pooled connections, for threads: `http://` and `https://`, redirects followed."""

from __future__ import annotations

import base64
import contextlib
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from hotplate.cache.errors import OriginUnavailable, UnknownUrl
from hotplate.cache.origins.blob_source import OnProgress, ignore
from hotplate.cache.origins.http_connection import HttpConnection
from hotplate.cache.origins.locations import hide
from hotplate.cache.origins.reach import is_public

_REDIRECTS = 10
_REDIRECT = (301, 302, 303, 307, 308)
_IDLE_CONNECTIONS = 16
"""Kept per host for the next requests."""

_SCRATCH_BYTES = 1 << 16
_SKIPPED_BYTES = 1 << 20
"""How much of a redirect's body is read; a longer one costs its connection."""
_TRAILERS = 64


class HttpResponse:
    """One response; its body is read once, front to back."""

    def __init__(
        self,
        connection: HttpConnection,
        url: str,
        method: str,
        head: tuple[int, str, dict[str, str]],
    ) -> None:
        self.url = url
        """The URL that responded, after redirects; not to be shown, since it may be a signed
        one."""
        self.status, version, self.headers = head
        self.body_bytes = 0
        """How many bytes of the body were read."""
        self.public = connection.public
        """Whether the response came from the internet."""
        self._connection = connection
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._remaining = int(length) if length.isdigit() and not self._chunked else None
        self._ended = method == "HEAD" or self.status in (204, 304) or self._remaining == 0
        option = self.headers.get("connection", "").lower()
        self._keeps = option == "keep-alive" or (version == "HTTP/1.1" and option != "close")
        if self._chunked:
            self._remaining = 0

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the head gives them."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isdigit() and not self._chunked else None

    @property
    def reusable(self) -> bool:
        """Whether the connection can take another request."""
        return self._ended and self._keeps and self._connection.clean

    def read_into(self, view: memoryview, on_progress: OnProgress = ignore) -> int:
        """Fills `view` as far as the body goes; how many bytes were read. Raises
        OriginUnavailable."""
        got = 0
        while got < len(view) and (count := self._some_into(view[got:])):
            got += count
            on_progress(got)
        return got

    def read_all(self, limit_bytes: int) -> bytes:
        """The body. Raises OriginUnavailable when it is longer than the limit."""
        data = bytearray()
        scratch = memoryview(bytearray(_SCRATCH_BYTES))
        while count := self._some_into(scratch):
            data += scratch[:count]
            if len(data) > limit_bytes:
                raise OriginUnavailable(f"{hide(self.url)} answered more than {limit_bytes} bytes")
        return bytes(data)

    def skip(self, count: int | None = None, on_progress: OnProgress = ignore) -> int:
        """Reads and discards `count` bytes (None: all); how many there were."""
        scratch = memoryview(bytearray(_SCRATCH_BYTES * 16))
        got = 0
        while count is None or got < count:
            want = len(scratch) if count is None else min(count - got, len(scratch))
            some = self._some_into(scratch[:want])
            if not some:
                break
            got += some
            on_progress(got)
        return got

    def _some_into(self, view: memoryview) -> int:
        try:
            if self._chunked and self._remaining == 0 and not self._ended:
                self._begin_chunk()
            if self._ended or not len(view):
                return 0
            part = view if self._remaining is None else view[: self._remaining]
            count = self._connection.recv_into(part)
            if not count and self._remaining is not None:
                raise ConnectionError(f"closed the connection {self._remaining} bytes too early")
            self._took(count)
            return count
        except (OSError, ValueError) as exc:
            raise unavailable(hide(self.url), exc, self.body_bytes) from exc

    def _took(self, count: int) -> None:
        self.body_bytes += count
        if self._remaining is None:
            self._ended = not count
            self._keeps = False
            return
        self._remaining -= count
        if self._remaining == 0 and self._chunked:
            self._connection.read_line()
        elif self._remaining == 0:
            self._ended = True

    def _begin_chunk(self) -> None:
        self._remaining = int(self._connection.read_line().partition(";")[0], 16)
        if self._remaining < 0:
            raise ConnectionError("sent a chunk of negative size")
        if self._remaining == 0:
            for _ in range(_TRAILERS):
                if not self._connection.read_line():
                    break
            else:
                raise ConnectionError(f"sent more than {_TRAILERS} trailers")
            self._ended = True


class HttpClient:
    """Thread-safe; a connection serves one request at a time and is kept for the next."""

    def __init__(self, is_public: Callable[[str], bool] = is_public) -> None:
        """`is_public` tells whether a numeric address is one of the internet."""
        self._is_public = is_public
        self._context = ssl.create_default_context()
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[HttpConnection]] = defaultdict(list)
        self._busy: set[HttpConnection] = set()
        self._closed = False

    @contextlib.contextmanager
    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        leave: bool = True,
        public: bool = False,
    ) -> Iterator[HttpResponse]:
        """The response after redirects (to another host if `leave`), whatever its status.

        `Authorization`, and a user in the URL, go to that host only. A response from the internet
        may redirect to the internet only; `public`: as if one had redirected to `url`. Raises
        OriginUnavailable, and UnknownUrl for a redirect that leads nowhere.
        """
        start, sent = urlsplit(url), dict(headers or {})
        for _ in range(_REDIRECTS):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UnknownUrl(f"{hide(url)} is no address of a file")
            moved = parts.netloc.rpartition("@")[2] != start.netloc.rpartition("@")[2]
            if moved or (start.scheme, parts.scheme) == ("https", "http"):
                sent.pop("Authorization", None)
            with self._exchange(method, url, parts, sent, public) as response:
                target = response.headers.get("location")
                further = urljoin(url, target or "")
                stays = urlsplit(further).netloc == parts.netloc
                if response.status not in _REDIRECT or target is None or not (leave or stays):
                    yield response
                    return
                response.skip(_SKIPPED_BYTES)
                url, public = further, public or response.public
        raise UnknownUrl(f"{hide(start.geturl())} redirects more than {_REDIRECTS} times")

    def close(self) -> None:
        """Ends all connections; a thread that waits for one gets OriginUnavailable."""
        with self._lock:
            self._closed = True
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()
            for connection in self._busy:
                connection.hang_up()

    @contextlib.contextmanager
    def _exchange(
        self, method: str, url: str, parts: SplitResult, headers: Mapping[str, str], public: bool
    ) -> Iterator[HttpResponse]:
        try:
            connection, head = self._sent(method, parts, _with_user(parts, headers), public)
        except (OSError, ValueError) as exc:
            raise unavailable(hide(url), exc) from exc
        response = HttpResponse(connection, url, method, head)
        try:
            yield response
        finally:
            self._keep(parts, connection, response.reusable)

    def _sent(
        self, method: str, parts: SplitResult, headers: Mapping[str, str], public: bool
    ) -> tuple[HttpConnection, tuple[int, str, dict[str, str]]]:
        """The connection that the request was sent on, and the head of the response."""
        while True:
            connection = self._take(parts, public)
            try:
                connection.send(method, parts, headers)
                return connection, connection.read_head()
            except OSError as exc:
                self._keep(parts, connection, reusable=False)
                if not connection.used or isinstance(exc, TimeoutError):
                    raise
            except BaseException:  # also when interrupted: cleaned up, and raised again
                self._keep(parts, connection, reusable=False)
                raise

    def _take(self, parts: SplitResult, public: bool) -> HttpConnection:
        with self._lock:
            idle = self._idle[parts.scheme, parts.netloc]
            connection = next((one for one in reversed(idle) if one.public or not public), None)
            if connection is not None:
                idle.remove(connection)
        connection = connection or HttpConnection(
            parts, self._context, public=public, is_public=self._is_public
        )
        with self._lock:
            self._busy.add(connection)
            closed = self._closed
        if closed:
            self._keep(parts, connection, reusable=False)
            raise ConnectionError("the agent is stopping")
        return connection

    def _keep(self, parts: SplitResult, connection: HttpConnection, reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            idle = self._idle[parts.scheme, parts.netloc]
            if reusable and not self._closed and len(idle) < _IDLE_CONNECTIONS:
                connection.used = True
                idle.append(connection)
                return
        connection.close()


def unavailable(url: str, exc: Exception, body_bytes: int = 0) -> OriginUnavailable:
    """The error of a broken exchange; `body_bytes` of its body were read before it broke."""
    reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
    error = OriginUnavailable(f"{url} does not answer ({reason}); check the URL and the network")
    error.body_bytes = body_bytes
    return error


def _with_user(parts: SplitResult, headers: Mapping[str, str]) -> dict[str, str]:
    if parts.username is None:
        return dict(headers)
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(user).decode()}", **headers}
