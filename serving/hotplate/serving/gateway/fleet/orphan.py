"""A connection to a replica whose gateway was killed: has its handler ended?

The connection itself was backed up (`backup_keeper.py`), so the replica notices nothing and goes
on. A response that begins now is read to its end, and with it the handler has ended. The length of
one that had begun before is unknown: it has ended with its last chunk, with the connection, or when
nothing has come for long. Pure, except for what the kernel says about the socket.
"""

from __future__ import annotations

import socket
import struct

from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.http1.response_reader import BadResponse, ResponseReader

LAST_TIMES_AT = 44
"""Where `tcpi_last_data_sent` is in Linux' `tcp_info`; `tcpi_last_data_recv` is 8 bytes behind."""
SLACK_MS = 20
"""The kernel reports these times in ticks."""
HEAD = b"HTTP/1."
METHOD = b"GET"
"""The real method is not known; the response to any but a HEAD is read in the same way."""
LAST_CHUNK = b"0\r\n\r\n"


class Discarded:
    """Takes a response that no caller waits for."""

    def started(self) -> None: ...

    def waits(self) -> None: ...

    def on_head(self, head: ResponseHead) -> None: ...

    def on_body(self, data: bytes) -> None: ...


class Orphan:
    """The state of one such connection."""

    def __init__(self, *, asked: bool, now: float) -> None:
        """`asked`: a request may have been sent on it after the last response."""
        self.ended = False
        self.answered = False
        """Whether a whole response came, and so a handler ended. A connection that just ends may
        have had none."""
        self._asked = asked
        self._since = self._data_at = now
        self._has_response = False
        """Whether some of a response has come."""
        self._response: ResponseReader | None = None

    def take(self, data: bytes, now: float) -> None:
        """More of a response came; empty = the connection has ended."""
        self._data_at = now
        if not data:
            self._end(answered=self._has_response)
            return
        if not self._has_response:
            self._has_response = True
            if self._asked and HEAD.startswith(data[: len(HEAD)]):
                self._response = ResponseReader()
                self._response.begin(Discarded(), METHOD)
        response = self._response
        if response is None:
            if data.endswith(LAST_CHUNK):
                self._end(answered=True)
            return
        try:
            response.feed(data)
        except BadResponse:
            self._end(answered=True)  # it is not read any further
        if response.ended:
            self._end(answered=True)

    def is_open(self, now: float, *, quiet_s: float, most_s: float) -> bool:
        """Whether its handler may still run: for `most_s` if no response has begun, else until
        `quiet_s` after its last piece."""
        if self.ended:
            return False
        if self._asked and not self._has_response:
            return now - self._since < most_s
        return now - self._data_at < quiet_s

    # Inside

    def _end(self, *, answered: bool) -> None:
        self.answered = self.answered or answered
        self.ended = True


def is_asked(sock: socket.socket) -> bool:
    """Whether the last bytes sent on a TCP connection may be later than the last received."""
    if not hasattr(socket, "TCP_INFO"):
        return True
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_TIMES_AT + 12)
    if len(info) < LAST_TIMES_AT + 12:
        return True
    sent_ms_ago, _, came_ms_ago = struct.unpack_from("III", info, LAST_TIMES_AT)
    return bool(sent_ms_ago <= came_ms_ago + SLACK_MS)
