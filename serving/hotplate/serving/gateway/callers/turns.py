"""Which request is served on a caller's connection. Pure.

A caller may send requests ahead; they are served one at a time, in the order in which they came, so
that their responses are in that order too (RFC 9112, 9.3.2). The table says which state follows
which; what is not in it cannot happen.

                    begin        await        stop_waiting   answered   end       close
        FREE        SERVING      AWAITING                               ENDING    CLOSED
        AWAITING                              FREE                                CLOSED
        SERVING                                              FREE                 CLOSED
        ENDING                                                          ENDING    CLOSED
        CLOSED      (final)
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from hotplate.serving.gateway.errors import BadRequest

Request = TypeVar("Request")

# A connection's states; not an enum, because they are compared with every request.
FREE: Final = 0
"""No request: the next one may begin as soon as it is here."""
AWAITING: Final = 1
"""The turn of the next request has come, but its body is waited for."""
SERVING: Final = 2
"""A request is being served, and its response is the next to be written."""
ENDING: Final = 3
"""The last response was written, and what still comes is dropped."""
CLOSED: Final = 4
"""Nothing more is written or read."""

BEGIN: Final = 0
AWAIT: Final = 1
STOP_WAITING: Final = 2
ANSWERED: Final = 3
END: Final = 4
CLOSE: Final = 5

NEVER: Final = 255
TABLE: Final = (
    (SERVING, AWAITING, NEVER, NEVER, ENDING, CLOSED),
    (NEVER, NEVER, FREE, NEVER, NEVER, CLOSED),
    (NEVER, NEVER, NEVER, FREE, NEVER, CLOSED),
    (NEVER, NEVER, NEVER, NEVER, ENDING, CLOSED),
    (CLOSED, CLOSED, CLOSED, CLOSED, CLOSED, CLOSED),
)
"""The next state, by state and by what happens."""
_EVENTS: Final = 6
_NEXT: Final[bytes] = bytes(state for row in TABLE for state in row)
"""The same as bytes, because an index into tuples is slow in compiled code."""


class Turns(Generic[Request]):
    """The requests of one connection, in the order of their coming."""

    __slots__ = ("_ahead", "active", "awaited", "early", "reading", "state")

    def __init__(self) -> None:
        self.state: int = FREE
        self.active: Request | None = None
        """The request whose turn it is."""
        self.reading: Request | None = None
        """The request whose body is being read, or was read last and has no response."""
        self.awaited: Request | None = None
        """The request whose turn it is as soon as more of its body is here."""
        self.early: Request | None = None
        """The request that may begin although its body is still coming."""
        self._ahead: deque[Request | BadRequest] = deque()
        """Requests whose turn has not come, and the error that ends the connection, if there is
        one."""

    @property
    def ahead(self) -> int:
        """How many requests wait for their turn."""
        return len(self._ahead)

    @property
    def is_ending(self) -> bool:
        """Whether the last response was written, and what still comes is dropped."""
        return self.state == ENDING

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is written or read."""
        return self.state == CLOSED

    @property
    def is_free(self) -> bool:
        """Whether a request that comes whole may begin at once."""
        return self.state == FREE and not self._ahead

    @property
    def next(self) -> Request | BadRequest | None:
        """The request that could begin; None = there is none, or another one is being served."""
        return self._ahead[0] if self._ahead and self.state <= AWAITING else None

    # What comes

    def begin(self, request: Request) -> None:
        """A request came whole and none is before it: it is served at once."""
        self._go(BEGIN)
        self.reading = self.active = request

    def add(self, request: Request) -> None:
        """The header of a request came; its turn comes later."""
        self.reading = request
        self._ahead.append(request)

    def reject_rest(self, error: BadRequest, *, whole: bool) -> None:
        """What comes from here on is not understood; the error is the response when its turn comes.
        `whole`: the request that was read last is whole; otherwise it is not served."""
        if self.reading is None or whole:
            self._ahead.append(error)
        elif self._ahead and self._ahead[-1] is self.reading:
            self._ahead[-1] = error

    def drop_last(self) -> None:
        """The request that is being read will not become whole: it gets no turn, unless it has had
        it."""
        if self._ahead and self._ahead[-1] is self.reading:
            self._ahead.pop()

    # How turns follow each other

    def take(self) -> Request | BadRequest:
        """Removes and returns the next request; its turn has come."""
        following = self._ahead.popleft()
        if not isinstance(following, BadRequest):
            self._go(BEGIN)
            self.active = following
        return following

    def wait_for_body(self, request: Request) -> None:
        """The turn of the next request has come, but more of its body has to come first."""
        self._go(AWAIT)
        self.awaited = request

    def stop_waiting(self) -> Request | None:
        """No body is waited for any longer; returns the request whose body was."""
        awaited, self.awaited = self.awaited, None
        if awaited is not None:
            self._go(STOP_WAITING)
        return awaited

    def answered(self, *, whole: bool) -> None:
        """The response to the active request was written; `whole`: all of its body has come."""
        self._go(ANSWERED)
        if whole and self.active is self.reading:
            self.reading = None
        self.active = None

    def end(self) -> None:
        """No further request begins, and what still comes is read for a moment only."""
        self._go(END)
        self._ahead.clear()

    def close(self) -> None:
        """Nothing more is written or read."""
        self._go(CLOSE)

    def clear(self) -> Request | None:
        """The connection is gone; returns the request whose turn it was."""
        self._ahead.clear()
        active, self.active = self.active, None
        return active

    def _go(self, event: int) -> None:
        state = _NEXT[self.state * _EVENTS + event]
        assert state != NEVER, (self.state, event)
        self.state = state
