"""What waits for a slot and in which order: tickets, replicas' slots, lines. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

Holder = TypeVar("Holder")


class Replica:
    """One replica's slots."""

    __slots__ = ("concurrency", "draining", "foreign", "gone", "id", "out_until", "taken", "turn")

    def __init__(self, replica_id: str) -> None:
        self.id = replica_id
        self.concurrency = 0
        self.draining = False
        self.gone = False
        """No longer in the table; kept until its slots have come back."""
        self.taken = 0
        self.foreign = 0
        """Slots that other gateways' requests have."""
        self.out_until = 0.0
        self.turn = 0
        """When it got its last ticket, as a running number: the one longest without goes first."""


class Ticket(Generic[Holder]):
    """One request's place: in the line first, then in a replica."""

    __slots__ = (
        "arrived_at",
        "ends_at",
        "expired",
        "granted_at",
        "hold_s",
        "holder",
        "needs_slot",
        "replica",
        "size_bytes",
        "timeout_s",
    )

    def __init__(
        self,
        holder: Holder,
        *,
        arrived_at: float,
        timeout_s: float,
        hold_s: float,
        size_bytes: int = 0,
        needs_slot: bool = True,
    ) -> None:
        self.holder = holder
        self.arrived_at = arrived_at
        self.timeout_s = timeout_s
        """Time until its end, counted from when the route has an open replica."""
        self.hold_s = hold_s
        """Time it may wait for an open replica."""
        self.size_bytes = size_bytes
        self.needs_slot = needs_slot
        """False: it waits for a replica to be ready, not for a slot, and takes none."""
        self.replica: Replica | None = None
        self.granted_at = 0.0
        self.ends_at = 0.0
        """When its time is over, fixed as it is granted; infinite lets it run on."""
        self.expired = False


class Ledger(Protocol):
    """Writes down which slots are taken, for when somebody else has to know."""

    def take(self, replica: Replica, now: float) -> None:
        """A slot of the replica was taken."""

    def give(self, replica: Replica, service_s: float) -> None:
        """A slot of the replica came back after that time."""


class Line(Protocol[Holder]):
    """The order in which tickets wait."""

    def push(self, ticket: Ticket[Holder]) -> None: ...
    def push_first(self, ticket: Ticket[Holder]) -> None: ...
    def take(self) -> Ticket[Holder]: ...
    def remove(self, ticket: Ticket[Holder]) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Ticket[Holder]]: ...


class Fifo(OrderedDict[Ticket[Holder], None]):
    """First come, first served."""

    def push(self, ticket: Ticket[Holder]) -> None:
        self[ticket] = None

    def push_first(self, ticket: Ticket[Holder]) -> None:
        self[ticket] = None
        self.move_to_end(ticket, last=False)

    def take(self) -> Ticket[Holder]:
        return self.popitem(last=False)[0]

    def remove(self, ticket: Ticket[Holder]) -> None:
        del self[ticket]
