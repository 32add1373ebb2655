"""What a call to a queue has brought to its tickets. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic

from hotplate.serving.gateway.queue.ticket import Holder, Ticket


class End(enum.Enum):
    """Why a ticket's wait, or its caller's, is over before an answer began."""

    SHARE_FULL = "share_full"
    """The queue is full, by count or bytes, and its organization fills its share of it."""
    PUSHED_OUT = "pushed_out"
    """The same of one that waited, when another organization's came that fills less."""
    NO_CAPACITY = "no_capacity"
    """It cannot be answered before its time is over."""
    NO_REPLICA = "no_replica"
    """No replica was ready for as long as it may be held."""
    WAITING = "waiting"
    """Its time ran out in the line."""
    RUNNING = "running"
    """Its time ran out in its replica, whose slot it keeps until `release`."""


class Changes(Generic[Holder]):
    """The tickets whose place a call has changed, the caller's own among them."""

    __slots__ = ("ended", "granted")

    def __init__(
        self,
        granted: Sequence[Ticket[Holder]] = (),
        ended: Sequence[tuple[Ticket[Holder], End]] = (),
    ) -> None:
        self.granted = granted
        self.ended = ended

    def __iter__(self) -> Iterator[Any]:
        """`granted, ended`."""
        return iter((self.granted, self.ended))


NOTHING: Final[Changes[Any]] = Changes()
