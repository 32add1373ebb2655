"""Serving chunks to peers: one thread per connection, bytes straight from where they lie."""

from __future__ import annotations

import hmac
import http
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping

from hotplate.cache.metrics import Metrics
from hotplate.cache.peers.chunk_client import (
    ASKER,
    DIGEST,
    DIGESTS_ONLY,
    HAVE,
    HOLD,
    OTHERS,
    RETRY,
    URGENT,
)
from hotplate.cache.peers.chunk_source import ChunkSource
from hotplate.cache.swarm.assignment import Missed
from hotplate.cache.swarm.chunk_request import ChunkOffer, ChunkRequest
from hotplate.cache.swarm.peer_scores import NO_PROGRESS_S
from hotplate.cache.swarm.upload_slots import UploadSlots
from hotplate.machine.access.own_hosts import OwnHosts

PREFIX = b"GET /v1/chunks/"
"""How every request for a chunk begins; a connection that begins so is served here."""

BROWSERS = ("origin", "sec-fetch-site")
"""Header fields that only browsers send, which have no business with chunks."""

CONNECTIONS = 256
"""Threads at most; sixty peers with four connections each fit."""

_HEAD_BYTES = 8 << 10
_IDLE_S = 60.0
_HOLD_MAX_S = 2.0
_REQUEST = re.compile(r"GET /v1/chunks/([0-9a-f]{64})/(\d{1,9}) HTTP/1\.1$")
_STATUS = {Missed.NOT_YET: 202, Missed.LACKS: 404, Missed.CANNOT: 409, Missed.BUSY: 429}


class ChunkServer:
    """Serves the connections that the port hands over."""

    def __init__(
        self,
        source: ChunkSource,
        token: str,
        clock: Callable[[], float],
        metrics: Metrics,
        own: OwnHosts | None = None,
    ) -> None:
        """`own` are the host names that requests may address."""
        self._source = source
        self._own = own or OwnHosts()
        self._expected = f"Bearer {token}".encode() if token else b""
        self._clock = clock
        self._metrics = metrics
        self._uploads = UploadSlots()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    def serve(self, connection: socket.socket) -> bool:
        """Serves it on a thread of its own until the peer leaves; False when there are too many."""
        with self._lock:
            if len(self._connections) >= CONNECTIONS:
                return False
            self._connections.add(connection)
        threading.Thread(target=self._run, args=(connection,), daemon=True).start()
        return True

    def close(self) -> None:
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the peer is gone already

    def _run(self, connection: socket.socket) -> None:
        try:
            # Not settimeout: it makes the socket a non-blocking one, with a poll for each call.
            connection.setblocking(True)
            limit = struct.pack("ll", int(_IDLE_S), 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            # A peer that takes nothing for that long keeps an upload slot from others.
            limit = struct.pack("ll", int(NO_PROGRESS_S), int(NO_PROGRESS_S % 1 * 1e6))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rest = bytearray()
            while (head := _read_head(connection, rest)) is not None:
                if not self._respond(connection, head):
                    break
        except OSError:
            pass  # the peer is gone, or sends nothing
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _respond(self, connection: socket.socket, head: str) -> bool:
        """Whether the connection can take another request."""
        first, *lines = head.split("\r\n")
        match = _REQUEST.match(first)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        if match is None or "content-length" in headers or "transfer-encoding" in headers:
            _send_head(connection, 400, {"Connection": "close"})
            return False
        if self._own.refusal([headers["host"]] if "host" in headers else []):
            _send_head(connection, 421, {"Connection": "close"})
            return False
        if any(name in headers for name in BROWSERS):
            _send_head(connection, 403, {"Connection": "close"})
            return False
        given = headers.get("authorization", "").encode("latin-1")
        if self._expected and not hmac.compare_digest(given, self._expected):
            _send_head(connection, 401, {"Connection": "close"})
            return False
        try:
            hold_s = min(float(headers.get(HOLD, "0")), _HOLD_MAX_S)
            have = int(headers.get(HAVE, "0"), 16)
        except ValueError:
            _send_head(connection, 400, {"Connection": "close"})
            return False
        digest, asker = headers.get(DIGEST, ""), headers.get(ASKER, "")
        request = ChunkRequest(match[1], int(match[2]), digest, URGENT in headers, asker, have)
        if DIGESTS_ONLY in headers:
            _send_head(connection, 200, {DIGEST: ",".join(self._source.digests(request))})
        else:
            self._send(connection, request, self._source.offer(request, hold_s))
        return True

    def _send(self, connection: socket.socket, request: ChunkRequest, offer: ChunkOffer) -> None:
        extra = {HAVE: f"{offer.have:x}"}
        if offer.data is None:
            assert offer.missed is not None
            _send_head(connection, _STATUS[offer.missed], extra)
            return
        with self._lock:
            retry_s = self._uploads.begin()
        if retry_s is not None:
            self._metrics.refusals.inc()
            others = ",".join(self._source.other_holders(request))
            later = {RETRY: f"{retry_s:.3f}", "Retry-After": "1", OTHERS: others}
            _send_head(connection, _STATUS[Missed.BUSY], extra | later)
            return
        began = self._clock()
        try:
            _send_head(connection, 200, extra | {DIGEST: offer.digest}, len(offer.data))
            connection.sendall(offer.data)
            self._metrics.peer_bytes_out.inc(len(offer.data))
            self._source.delivered(request)
        finally:
            with self._lock:
                self._uploads.end(self._clock() - began)


def _read_head(connection: socket.socket, rest: bytearray) -> str | None:
    """The next request's head; None when the peer is gone. Raises OSError."""
    while (end := rest.find(b"\r\n\r\n")) < 0:
        if len(rest) > _HEAD_BYTES:
            raise ConnectionError(f"a head of more than {_HEAD_BYTES} bytes")
        data = connection.recv(_HEAD_BYTES)
        if not data:
            return None
        rest += data
    head = rest[:end].decode("latin-1")
    del rest[: end + 4]
    return head


def _send_head(
    connection: socket.socket, status: int, headers: Mapping[str, str], length: int = 0
) -> None:
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    more = socket.MSG_MORE if length else 0  # the body follows, in the same packets
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"), more)
