"""Whose turn it is on a caller's connection. Pure.

A caller may send requests ahead; they are served one at a time, in the order of their coming, so
that their answers are in that order too (RFC 9112, 9.3.2). The table says how one turn follows
another; what is not in it cannot happen.

                    begin        await        forsake   answered   end       close
        FREE        SERVING      AWAITING                          ENDING    CLOSED
        AWAITING                              FREE                           CLOSED
        SERVING                                         FREE                 CLOSED
        ENDING                                                     ENDING    CLOSED
        CLOSED      (stays, whatever comes)
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from hotplate.serving.gateway.errors import BadRequest

Request = TypeVar("Request")

# What a connection is in the middle of; not an enum, because every request asks.
FREE: Final = 0
"""Nothing: the next request may begin as soon as it is here."""
AWAITING: Final = 1
"""The next one's turn has come, but for its body."""
SERVING: Final = 2
"""A request is served, and its answer is the next to be written."""
ENDING: Final = 3
"""The last answer was written, and what still comes is thrown away."""
CLOSED: Final = 4
"""Nothing more is written or read."""

BEGIN: Final = 0
AWAIT: Final = 1
FORSAKE: Final = 2
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
"""The same, as it is looked up: an index into tuples is slow once this is compiled."""


class Turns(Generic[Request]):
    """The requests of one connection, in the order of their coming."""

    __slots__ = ("_ahead", "active", "awaited", "let_in", "reading", "state")

    def __init__(self) -> None:
        self.state: int = FREE
        self.active: Request | None = None
        """The one whose turn it is."""
        self.reading: Request | None = None
        """The one whose body is being read, or was read last and is not answered."""
        self.awaited: Request | None = None
        """The one whose turn it is as soon as more of its body is here."""
        self.let_in: Request | None = None
        """The one that may begin although its body still comes."""
        self._ahead: deque[Request | BadRequest] = deque()
        """Those whose turn has not come, and the end of all sense, if that has come."""

    @property
    def ahead(self) -> int:
        """How many wait for their turn."""
        return len(self._ahead)

    @property
    def is_ending(self) -> bool:
        """Whether the last answer was written, and what still comes is thrown away."""
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
        """The one whose turn it could be; None = there is none, or another one is served."""
        return self._ahead[0] if self._ahead and self.state <= AWAITING else None

    # What comes

    def begin(self, request: Request) -> None:
        """One came whole, and nothing is before it: it is served at once."""
        self._go(BEGIN)
        self.reading = self.active = request

    def came(self, request: Request) -> None:
        """The header of one came; its turn comes later."""
        self.reading = request
        self._ahead.append(request)

    def end_of_sense(self, error: BadRequest, *, whole: bool) -> None:
        """Nothing that comes from here on is understood, which is said as the last one's turn has
        come. `whole`: what was read last is here whole; otherwise it is not served."""
        if self.reading is None or whole:
            self._ahead.append(error)
        elif self._ahead and self._ahead[-1] is self.reading:
            self._ahead[-1] = error

    def drop_last(self) -> None:
        """The one that is being read will not be whole: it gets no turn, if it has not had it."""
        if self._ahead and self._ahead[-1] is self.reading:
            self._ahead.pop()

    # How turns follow each other

    def take(self) -> Request | BadRequest:
        """It is the next one's turn."""
        following = self._ahead.popleft()
        if not isinstance(following, BadRequest):
            self._go(BEGIN)
            self.active = following
        return following

    def wait_for_body(self, request: Request) -> None:
        """The next one's turn has come, but more of its body is to be here first."""
        self._go(AWAIT)
        self.awaited = request

    def forsake(self) -> Request | None:
        """No body is waited for any longer; whose it was."""
        awaited, self.awaited = self.awaited, None
        if awaited is not None:
            self._go(FORSAKE)
        return awaited

    def answered(self, *, whole: bool) -> None:
        """The active one's answer has been written; `whole`: all of its body has come."""
        self._go(ANSWERED)
        if whole and self.active is self.reading:
            self.reading = None
        self.active = None

    def end(self) -> None:
        """There will be no turn more, and what still comes is read for a moment only."""
        self._go(END)
        self._ahead.clear()

    def close(self) -> None:
        """Nothing more is written or read."""
        self._go(CLOSE)

    def clear(self) -> Request | None:
        """The connection is gone; whose turn it was."""
        self._ahead.clear()
        active, self.active = self.active, None
        return active

    def _go(self, event: int) -> None:
        state = _NEXT[self.state * _EVENTS + event]
        assert state != NEVER, (self.state, event)
        self.state = state
