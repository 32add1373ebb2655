"""What is known of one organization on one route. Pure."""

from __future__ import annotations

from typing import Final, Generic

from hotplate.serving.gateway.queue.order import Order
from hotplate.serving.gateway.queue.ticket import Holder

NO_ROUND: Final = 0
NO_ENTRY: Final = 0


class Share(Generic[Holder]):
    """One organization's part in a route's slots and queue."""

    __slots__ = (
        "cost_s",
        "entry",
        "name",
        "order",
        "queued_bytes",
        "round",
        "running",
        "tag",
        "weight",
    )

    def __init__(self, name: str, weight: float, cost_s: float) -> None:
        self.name = name
        self.weight = weight
        self.order: Order[Holder] = Order()
        self.queued_bytes = 0
        self.running = 0
        self.tag = 0.0
        self.round = NO_ROUND
        """The contest that its tag is of."""
        self.cost_s = cost_s
        """What a request of it takes on average, as far as is known."""
        self.entry = NO_ENTRY
        """The number of its entry in the line's heap that counts."""
