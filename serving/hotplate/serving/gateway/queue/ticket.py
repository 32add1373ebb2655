"""One request's place: in the line first, then in a replica. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY

if TYPE_CHECKING:
    from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit, Mark
    from hotplate.serving.gateway.queue.flow import Share
    from hotplate.serving.gateway.queue.replica_slots import Replica

Holder = TypeVar("Holder")

EARLIER: Final = -math.inf
NO_MARK: Final = (0.0, 0)

# Where a ticket is; not an enum, because every request is asked several times.
ENDED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2


class Ticket(Generic[Holder]):
    """One request, from its arrival until its replica is done with it."""

    __slots__ = (
        "adaptive",
        "answered_at",
        "arrived_at",
        "charged_s",
        "ends_at",
        "expired",
        "granted_at",
        "hold_s",
        "holder",
        "mark",
        "needs_slot",
        "number",
        "organization",
        "place",
        "priority",
        "replica",
        "round",
        "share",
        "size_bytes",
        "teaches",
        "timeout_s",
        "whole_at",
    )

    def __init__(
        self,
        holder: Holder,
        arrived_at: float,
        timeout_s: float,
        hold_s: float,
        size_bytes: int = 0,
        needs_slot: bool = True,
        organization: str = "",
        priority: int = USUAL_PRIORITY,
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
        self.organization = organization
        self.priority = priority
        self.place = ENDED
        self.replica: Replica | None = None
        self.expired = False
        """Its time ran out in its replica."""
        self.teaches = True
        """How long it takes says something of its replica; what fails says nothing."""
        self.adaptive: AdaptiveLimit | None = None
        """Where it counts; None = nowhere."""
        self.mark: Mark = NO_MARK
        self.answered_at = 0.0
        """When its answer began; 0 = it has not."""
        self.whole_at = EARLIER
        """When the last of it came, where that was after its submission."""
        self.share: Share[Holder] | None = None

    # Kept by the queue, from its submission on:
    number: int
    """Counts the tickets of its queue, in the order of their arrival."""
    ends_at: float
    """When its time is over as things are; infinite lets it run on."""
    granted_at: float
    # Kept by the line, from its grant on:
    charged_s: float
    """The slot time that its organization was charged for it."""
    round: int
    """The contest in which it was charged."""
