"""One HTTP/1.1 connection on a blocking socket, read by hand.

Bytes of a body go from the kernel straight to where they belong; the standard client's copies
cost as much again as the transfer.
"""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import SplitResult, quote

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.origins.reach import is_public

T = TypeVar("T")

NO_PROGRESS_S = 30
"""Without a byte for that long, a connection counts as broken."""

_CONNECT_S = 10
_LOOK_S = 0.25
"""How long bytes may stay in the kernel while more are waited for: slow progress is progress
too."""

_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 16 << 10
"""What is read at once while a head is awaited: little of the body comes along with it."""

_WAKE_BYTES = 1 << 20
"""How many bytes of a body wake the reader: waking for each packet costs a tenth as much as
receiving and verifying it. Not for a connection's first response, where it would keep the window
small."""

_HEADS = 10
"""Heads of one response: the interim ones (100, 103), and its own."""

_PATH = "/%:@!$&'()*+,;=~-._"
_QUERY = _PATH + "?"


class HttpConnection:
    """Methods raise OSError when the other side has gone, or gives nothing for `silence_s`."""

    def __init__(
        self,
        url: SplitResult,
        context: ssl.SSLContext,
        silence_s: float = NO_PROGRESS_S,
        connect_s: float = _CONNECT_S,
        public: bool = False,
        is_public: Callable[[str], bool] = is_public,
    ) -> None:
        """`public`: at addresses of the internet only; raises UnknownUrl where there are none."""
        port = url.port or (443 if url.scheme == "https" else 80)
        raw = _connect(url.hostname or "", port, connect_s, is_public if public else None)
        self.public = is_public(raw.getpeername()[0])
        """Whether it leads to the internet."""
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._silence_s = silence_s
        self.used = False
        """Whether it has served a request before: an idle one may have been closed meanwhile."""
        self._unread = bytearray()
        self._wakes_at = 1
        self._tls = url.scheme == "https"
        if self._tls:
            try:
                self._socket: socket.socket = context.wrap_socket(raw, server_hostname=url.hostname)
            except BaseException:  # also when interrupted: cleaned up, and raised again
                raw.close()
                raise
            self._socket.settimeout(silence_s)
        else:
            # Not settimeout: it makes the socket a non-blocking one, with a poll for each read.
            raw.settimeout(None)
            look_s = min(_LOOK_S, silence_s)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(look_s))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(silence_s))
            self._socket = raw

    @property
    def clean(self) -> bool:
        """Whether all bytes that came were read."""
        return not self._unread

    def send(self, method: str, url: SplitResult, headers: Mapping[str, str]) -> None:
        """Sends a request without a body."""
        host = url.netloc.rpartition("@")[2]
        target = quote(url.path or "/", safe=_PATH)
        if url.query:
            target += "?" + quote(url.query, safe=_QUERY)
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: hotplate"]
        lines += ["Accept: */*", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))

    def read_head(self) -> tuple[int, str, dict[str, str]]:
        """Status, HTTP version, and headers with lower-case names, of the next response."""
        for _ in range(_HEADS):
            lines = self._until(b"\r\n\r\n").split("\r\n")
            version, _, rest = lines[0].partition(" ")
            if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
                raise ConnectionError(f"answered something other than HTTP: {lines[0][:80]!r}")
            if not rest.startswith("1"):
                break
        else:
            raise ConnectionError(f"answered {_HEADS} times that it will answer")
        fields = (line.partition(":") for line in lines[1:])
        headers = {name.lower(): value.strip() for name, _, value in fields}
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise ConnectionError(f"answered with a body of {length[:80]!r} bytes")
        return int(rest[:3]), version, headers

    def read_line(self) -> str:
        return self._until(b"\r\n")

    def recv_into(self, view: memoryview) -> int:
        """Fills `view`, or the part that comes in a moment; 0 at the connection's end."""
        if self._unread:
            count = min(len(self._unread), len(view))
            view[:count] = memoryview(self._unread)[:count]
            del self._unread[:count]
            return count
        if self._tls:
            return self._patiently(lambda: self._socket.recv_into(view))
        # The last bytes are read separately, since a read wakes only for as many as it waits for.
        first = len(view) - _WAKE_BYTES if self.used else 0
        self._wake_at(_WAKE_BYTES if first > 0 else 1)
        want = first if first > 0 else len(view)
        return self._patiently(lambda: self._socket.recv_into(view, want, socket.MSG_WAITALL))

    def _wake_at(self, queued_bytes: int) -> None:
        """Wakes a read once that many bytes have come, or after `_LOOK_S`."""
        if queued_bytes != self._wakes_at:
            self._wakes_at = queued_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, queued_bytes)

    def hang_up(self) -> None:
        """Ends the wait of another thread, which still has to close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _until(self, end: bytes) -> str:
        """Reads up to `end`, and returns what comes before it."""
        while (at := self._unread.find(end)) < 0:
            if len(self._unread) > _HEAD_BYTES:
                raise ConnectionError(f"answered with a head of more than {_HEAD_BYTES} bytes")
            if not self._tls:
                self._wake_at(1)
            data = self._patiently(lambda: self._socket.recv(_PIECE_BYTES))
            if not data:
                raise ConnectionError("closed the connection")
            self._unread += data
        found = self._unread[:at].decode("latin-1")
        del self._unread[: at + len(end)]
        return found

    def _patiently(self, read: Callable[[], T]) -> T:
        """What `read` returns within `silence_s`. Without TLS, each read gives up much earlier."""
        for _ in range(math.ceil(self._silence_s / _LOOK_S)):
            with contextlib.suppress(BlockingIOError):
                return read()
        raise TimeoutError(f"gave nothing for {self._silence_s:g} s")


def _connect(
    host: str, port: int, connect_s: float, allowed: Callable[[str], bool] | None
) -> socket.socket:
    """Connects to the very address that was checked: a name may resolve differently the next
    time."""
    if allowed is None:
        return socket.create_connection((host, port), connect_s)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(filter(allowed, dict.fromkeys(str(one[4][0]) for one in found)))
    if not addresses:
        raise UnknownUrl(
            f"{host} is an address of this machine or its network, to which an answer from the "
            "internet has led; name it yourself if that is meant"
        )
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), connect_s)
    return socket.create_connection((addresses[-1], port), connect_s)


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
