"""A number of replicas that one rule proposes, and the text for its reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from hotplate.autoscaler.policy import Cause, Demand


class Proposal(NamedTuple):
    """What one rule proposes; the largest proposal wins."""

    replicas: int
    cause: Cause
    why: Callable[[], str]
    """Makes the reason's text on demand, since few proposals win and fewer are read. It refers to
    figures only, and to no state that changes."""
    next_at: float = math.inf
    """When the proposal may change without an event (loop seconds)."""
    forecast: int = 0
    """How many of the replicas are for requests that are expected and not there yet."""

    def limited_to(self, replicas: int, why: str, next_at: float = math.inf) -> Proposal:
        """This proposal, granted in part; `why` says what limits it."""
        return Proposal(replicas, self.cause, lambda: f"{self.why()}; {why}", next_at)


def larger(first: Proposal, second: Proposal) -> Proposal:
    """The larger proposal; of equal ones the first."""
    return second if second.replicas > first.replicas else first


def count(number: int, thing: str) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def demand_text(demand: Demand) -> str:
    """`2 requests in flight and 1 queued`."""
    if not demand.queued:
        return f"{count(demand.in_flight, 'request')} in flight"
    if not demand.in_flight:
        return f"{count(demand.queued, 'request')} queued"
    return f"{count(demand.in_flight, 'request')} in flight and {demand.queued} queued"


def seconds(duration_s: float) -> str:
    """`4.1 s`, `30 s`."""
    return (
        f"{duration_s:.1f}".removesuffix(".0") + " s" if duration_s < 10 else f"{duration_s:.0f} s"
    )
