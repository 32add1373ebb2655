"""What decides in a simulation: our own decider, or a peer's rule (`peers.py`)."""

from __future__ import annotations

from typing import Protocol

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Decision, Demand, Policy, Replicas

REPORT_S = 0.2
"""The gateway tells a change of demand this late; at once, where none was known of."""
MAX_REPLICAS = 20
"""Of each deployment, under every policy."""


class Scaler(Protocol):
    """Decides for one deployment. All times are virtual seconds and never go back."""

    def changed(self, total: int, live: int, now: float) -> float:
        """`total` requests are in flight or queued from now on, on `live` replicas: when to decide
        because of that; inf = not because of that."""

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision: ...

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        """A replica became ready this long after its start began: when to decide because of it."""


class OurScaler:
    """The product's decider, told of demand as the gateway tells it.

    It knows how long a start takes: in life one has ended before requests come, the roll-out's.
    """

    def __init__(self, policy: Policy, cold_start_s: float, now: float) -> None:
        self._decider = Decider(policy, now=now)
        self._decider.record_cold_start(cold_start_s)
        self._told = 0
        """Requests that the decider knows of."""
        self._peak = 0
        """The most requests that there were at once since the last report."""

    def changed(self, total: int, live: int, now: float) -> float:
        self._peak = max(self._peak, total)
        return now if total and not self._told else now + REPORT_S

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        self._told = demand.total
        self._decider.observe(demand, now, self._peak)
        self._peak = 0
        return self._decider.decide(replicas, now)

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        self._decider.record_cold_start(cold_start_s)
        return now
