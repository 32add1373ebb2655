"""The tickets whose state a call to a queue has changed. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic

from hotplate.serving.gateway.queue.ticket import Ticket, WaiterT


class End(enum.Enum):
    """Why a ticket, or only its caller's wait for it, ended before a response began."""

    SHARE_FULL = "share_full"
    """The queue is full, by count or bytes, and its organization fills its share of it."""
    PUSHED_OUT = "pushed_out"
    """The same, but the ticket had waited, and left for one of an organization that fills less."""
    NO_CAPACITY = "no_capacity"
    """It cannot be answered in its remaining time."""
    NO_REPLICA = "no_replica"
    """No replica became ready while it was held."""
    WAITING = "waiting"
    """Its time ran out in the queue."""
    RUNNING = "running"
    """Its time ran out in its replica; it keeps the slot until `release`."""


class Changes(Generic[WaiterT]):
    """The tickets that a call has granted or ended, the one that it was given among them."""

    __slots__ = ("ended", "granted")

    def __init__(
        self,
        granted: Sequence[Ticket[WaiterT]] = (),
        ended: Sequence[tuple[Ticket[WaiterT], End]] = (),
    ) -> None:
        self.granted = granted
        self.ended = ended

    def __iter__(self) -> Iterator[Any]:
        """`granted, ended`."""
        return iter((self.granted, self.ended))


NOTHING: Final[Changes[Any]] = Changes()
