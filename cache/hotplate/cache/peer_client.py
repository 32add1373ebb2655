"""Asking peers for chunks, on a fetcher's threads: connections kept, bytes straight into place."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from hotplate.cache.errors import CacheError
from hotplate.cache.http_connection import Connection
from hotplate.cache.peer_answer import PeerAnswer
from hotplate.cache.standing import NO_PROGRESS_S
from hotplate.cache.swarm import Missed

HOLD_S = 1.0
"""How long a peer is asked to keep a reader's request whose chunk it does not have yet. Others'
come back at once: kept, they would all be answered together when it has it, and share its link."""

_CONNECT_S = 1.0
_LEAST_BYTES = 64 << 10
"""In each `NO_PROGRESS_S`; less is a trickle, and no progress."""

HAVE, DIGEST, RETRY = "hotplate-have", "hotplate-digest", "hotplate-retry-s"
URGENT, HOLD = "hotplate-urgent", "hotplate-hold-s"

_MISSED = {202: Missed.NOT_YET, 404: Missed.LACKS, 409: Missed.CANNOT, 429: Missed.BUSY}


class PeerClient:
    """Connections to peers, by their `host:port`. Thread-safe."""

    def __init__(self, token: str, clock: Callable[[], float]) -> None:
        self._token = token
        self._clock = clock
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used: peers speak plain HTTP
        self._lock = threading.Lock()
        self._idle: dict[str, list[Connection]] = defaultdict(list)

    def read(
        self,
        address: str,
        key: str,
        index: int,
        view: memoryview,
        prepare: Callable[[], None],
        digest: str,
        urgent: bool,
        patience_s: float,
    ) -> PeerAnswer:
        """As `Peers.read`, of who is at that address; never raises for what a peer does.

        New memory takes as long to clear as a fast peer takes to fill it, so both are done at once.
        """
        url = urlsplit(f"http://{address}/v1/chunks/{key}/{index}")
        headers = {DIGEST: digest} if digest else {}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        headers |= {URGENT: "1", HOLD: f"{HOLD_S:g}"} if urgent else {}
        for fresh in (False, True):
            connection = self._take(address, url, fresh)
            if connection is None:
                break
            try:
                connection.send("GET", url, headers)
                prepare()
                head = _patient_head(connection)
            except OSError as exc:
                connection.close()
                if connection.used and not isinstance(exc, TimeoutError):
                    continue  # an idle connection that was closed meanwhile says nothing
                break
            except CacheError:  # there is no room, and the answer comes all the same
                connection.close()
                raise
            return self._body(address, connection, head, view, patience_s)
        return PeerAnswer(Missed.LEFT)

    def close(self) -> None:
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def _take(self, address: str, url: SplitResult, fresh: bool) -> Connection | None:
        with self._lock:
            if self._idle[address] and not fresh:
                return self._idle[address].pop()
        with contextlib.suppress(OSError):
            return Connection(url, self._tls, NO_PROGRESS_S / 2, _CONNECT_S)
        return None

    def _body(
        self,
        address: str,
        connection: Connection,
        head: tuple[int, str, dict[str, str]],
        view: memoryview,
        patience_s: float,
    ) -> PeerAnswer:
        status, _, headers = head
        got = 0
        try:
            have = int(headers.get(HAVE, "0"), 16)
            retry_s = float(headers.get(RETRY, "0"))
            length = int(headers.get("content-length", "0"))
            missed = None if status == 200 else _MISSED.get(status, Missed.LEFT)
            if (length != len(view)) if missed is None else length:
                raise ValueError(f"{length} bytes for a chunk of {len(view)}")
            if missed is None:
                got = self._fill(connection, view, self._clock() + patience_s)
        except (OSError, ValueError):
            connection.close()
            return PeerAnswer(Missed.LEFT, body_bytes=got)
        if got < len(view) and missed is None:
            connection.close()
            return PeerAnswer(Missed.LEFT, body_bytes=got)
        connection.used = True
        with self._lock:
            self._idle[address].append(connection)
        return PeerAnswer(missed, have, headers.get(DIGEST, ""), min(max(retry_s, 0.0), 2.0), got)

    def _fill(self, connection: Connection, view: memoryview, until: float) -> int:
        """How many bytes came before the connection ended, trickled, or `until` was over."""
        got, due = 0, _LEAST_BYTES
        due_at = self._clock() + NO_PROGRESS_S
        while got < len(view) and (now := self._clock()) < until:
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


def _patient_head(connection: Connection) -> tuple[int, str, dict[str, str]]:
    """Waits for the head twice as long as a connection may be silent, so NO_PROGRESS_S."""
    try:
        return connection.read_head()
    except TimeoutError:
        return connection.read_head()
