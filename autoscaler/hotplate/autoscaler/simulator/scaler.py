"""What decides in a simulation: our own decider, or a peer's rule (`peers.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Demand, Policy, Replicas

REPORT_S = 0.2
"""The gateway tells a change of demand this late; work for a sleeping deployment at once."""
MAX_REPLICAS = 20
"""Of each deployment, under every policy."""


class View(NamedTuple):
    """One deployment, as it stands."""

    demand: Demand
    replicas: Replicas


class Step(NamedTuple):
    """How many replicas there should be, why, and when to ask again if nothing changes."""

    desired: int
    why: Callable[[], str]
    next_at: float = math.inf


class Scaler(Protocol):
    """Decides for one deployment. All times are virtual seconds and never go back."""

    def changed(self, total: int, live: int, now: float) -> float:
        """`total` requests are in flight or queued from now on, on `live` replicas: when to decide
        because of that; inf = not because of that."""

    def decide(self, view: View, now: float) -> Step: ...

    def ready_after(self, cold_start_s: float) -> None:
        """A replica became ready this long after its start began."""


class Ours:
    """The product's decider, told of demand as the gateway tells it.

    It knows how long a start takes: in life one has ended before requests come, the roll-out's.
    """

    def __init__(self, policy: Policy, cold_start_s: float, now: float) -> None:
        self._decider = Decider(policy, now=now)
        self._decider.ready_after(cold_start_s)

    def changed(self, total: int, live: int, now: float) -> float:
        return now if total and not live else now + REPORT_S

    def decide(self, view: View, now: float) -> Step:
        self._decider.observe(view.demand, now)
        decision = self._decider.decide(view.replicas, now)
        next_at = math.inf if decision.next_at is None else decision.next_at
        return Step(decision.desired, decision.why, next_at)

    def ready_after(self, cold_start_s: float) -> None:
        self._decider.ready_after(cold_start_s)
