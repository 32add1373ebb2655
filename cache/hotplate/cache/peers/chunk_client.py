"""Asking peers for chunks, on a fetcher's threads: connections kept, bytes straight into place."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult

from hotplate.cache.errors import CacheError
from hotplate.cache.origins.http_connection import HttpConnection
from hotplate.cache.peers.members import Members
from hotplate.cache.swarm.assignment import Missed
from hotplate.cache.swarm.chunk_request import ChunkRequest, ChunkResponse
from hotplate.cache.swarm.peer_scores import NO_PROGRESS_S

HOLD_S = 1.0
"""How long a peer is asked to keep a reader's request for a chunk that it does not have yet. Other
requests come back at once: if kept, they would all be answered together and share its link."""

_CONNECT_S = 1.0
_LEAST_BYTES = 64 << 10
"""The least that has to come in each `NO_PROGRESS_S`; less is a trickle, and no progress."""

HAVE, DIGEST, RETRY = "hotplate-have", "hotplate-digest", "hotplate-retry-s"
URGENT, HOLD = "hotplate-urgent", "hotplate-hold-s"
ASKER, OTHERS = "hotplate-asker", "hotplate-others"
DIGESTS_ONLY = "hotplate-word"

_HAVE_BITS = 16 << 10
"""Files of more chunks (128 GiB) have bitmaps that are too long for the head of a request."""

_MISSED = {202: Missed.NOT_YET, 404: Missed.LACKS, 409: Missed.CANNOT, 429: Missed.BUSY}


class ClusterPeers:
    """The cluster's agents by their ids, for a fetcher's threads. Thread-safe."""

    def __init__(self, members: Members, client: ChunkClient) -> None:
        self.me = members.me
        self._members = members
        self._client = client

    def ask(self, peer: str, request: ChunkRequest) -> SentRequest | None:
        """As `Peers.ask`."""
        address = self._members.address_of(peer, self._client.clock())
        return None if address is None else self._client.ask(address, request)


class ChunkClient:
    """Connections to peers, by their `host:port`. Thread-safe."""

    def __init__(self, token: str, clock: Callable[[], float]) -> None:
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self.clock = clock
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used: peers speak plain HTTP
        self._lock = threading.Lock()
        self._idle: dict[str, list[HttpConnection]] = defaultdict(list)

    def ask(self, address: str, request: ChunkRequest) -> SentRequest:
        """As `Peers.ask`, of the agent at that address."""
        headers = {ASKER: request.asker} if request.asker else {}
        headers |= (
            {HAVE: f"{request.have:x}"} if 0 < request.have.bit_length() <= _HAVE_BITS else {}
        )
        headers |= {DIGEST: request.digest} if request.digest else {}
        headers |= self._authorization
        headers |= {URGENT: "1", HOLD: f"{HOLD_S:g}"} if request.urgent else {}
        headers |= {DIGESTS_ONLY: "1"} if request.digests_only else {}
        url = SplitResult("http", address, f"/v1/chunks/{request.key}/{request.index}", "", "")
        return SentRequest(self, url, headers)

    def close(self) -> None:
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def idle(self, url: SplitResult) -> HttpConnection | None:
        """An idle connection to that host, now the caller's."""
        with self._lock:
            return self._idle[url.netloc].pop() if self._idle[url.netloc] else None

    def connect(self, url: SplitResult) -> HttpConnection | None:
        with contextlib.suppress(OSError):
            return HttpConnection(url, self._tls, NO_PROGRESS_S / 2, _CONNECT_S)
        return None

    def keep(self, url: SplitResult, connection: HttpConnection) -> None:
        """The connection has served a request whole, and may serve another."""
        connection.used = True
        with self._lock:
            self._idle[url.netloc].append(connection)


class SentRequest:
    """A `PendingResponse`: already sent where a connection was idle. For one thread."""

    def __init__(self, client: ChunkClient, url: SplitResult, headers: Mapping[str, str]) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._began = client.clock()
        self._connection = self._send(client.idle(url))

    def read(
        self, view: memoryview, prepare: Callable[[], None], patience_s: float
    ) -> ChunkResponse:
        """As `PendingResponse.read`.

        New memory takes as long to clear as a fast peer takes to fill it, so both are done at once.
        """
        connection = self._connection or self._send(self._client.connect(self._url))
        while connection is not None:
            try:
                prepare()
                head = _patient_head(connection)
            except OSError as exc:
                connection.close()
                if not connection.used or isinstance(exc, TimeoutError):
                    break
                # That an idle connection was closed meanwhile says nothing of the peer.
                connection = self._send(self._client.connect(self._url))
            except CacheError:  # there is no room, and the response comes all the same
                connection.close()
                raise
            else:
                return self._body(connection, head, view, patience_s)
        return ChunkResponse(Missed.STALLED)

    def _send(self, connection: HttpConnection | None) -> HttpConnection | None:
        """Sends the request; None where there is no connection, or it has ended."""
        if connection is not None:
            try:
                connection.send("GET", self._url, self._headers)
            except OSError:
                connection.close()
                return None
        return connection

    def _body(
        self,
        connection: HttpConnection,
        head: tuple[int, str, dict[str, str]],
        view: memoryview,
        patience_s: float,
    ) -> ChunkResponse:
        status, _, headers = head
        got = 0
        try:
            have = int(headers.get(HAVE, "0"), 16)
            retry_s = float(headers.get(RETRY, "0"))
            length = int(headers.get("content-length", "0"))
            missed = None if status == 200 else _MISSED.get(status, Missed.STALLED)
            if (length != len(view)) if missed is None else length:
                raise ValueError(f"{length} bytes for a chunk of {len(view)}")
            if missed is None:
                got = self._fill(connection, view, self._client.clock() + patience_s)
        except (OSError, ValueError):
            connection.close()
            return ChunkResponse(Missed.STALLED, body_bytes=got)
        if got < len(view) and missed is None:
            connection.close()
            return ChunkResponse(Missed.STALLED, body_bytes=got)
        self._client.keep(self._url, connection)
        others = tuple(headers.get(OTHERS, "").split(","))
        retry_s = min(max(retry_s, 0.0), 2.0)
        return ChunkResponse(
            missed,
            have=have,
            digest=headers.get(DIGEST, ""),
            retry_s=retry_s,
            others=others,
            body_bytes=got,
            took_s=self._client.clock() - self._began,
        )

    def _fill(self, connection: HttpConnection, view: memoryview, until: float) -> int:
        """How many bytes came before the chunk was whole, the connection ended or only trickled, or
        it was `until`."""
        got, due = 0, _LEAST_BYTES
        due_at = self._client.clock() + NO_PROGRESS_S
        while got < len(view) and (now := self._client.clock()) < until:
            if got >= due:
                due, due_at = got + _LEAST_BYTES, now + NO_PROGRESS_S
            elif now >= due_at:
                break
            with contextlib.suppress(TimeoutError):  # silence; the clock tells for how long
                count = connection.recv_into(view[got:])
                if count == 0:
                    break
                got += count
        return got


def _patient_head(connection: HttpConnection) -> tuple[int, str, dict[str, str]]:
    """Waits for the head twice as long as a connection may be silent, which makes NO_PROGRESS_S."""
    try:
        return connection.read_head()
    except TimeoutError:
        return connection.read_head()
