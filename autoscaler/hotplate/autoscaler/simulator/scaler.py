"""What decides in a simulation: our own decider, or the rule of another autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Decision, Demand, Policy, Replicas

REPORT_S = 0.2
"""The gateway reports a change of demand this late, and the first demand at once."""
MAX_REPLICAS = 20
"""The limit of each deployment, under every policy, where nothing else is said."""


class Scaler(Protocol):
    """Decides for one deployment. All times are virtual seconds and never go back."""

    def changed(self, total: int, live: int, now: float) -> float:
        """From now on `total` requests are in flight or queued, on `live` replicas. Returns when to
        decide because of that; inf = not because of that."""

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision: ...

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        """A replica became ready this long after its start began. Returns when to decide because
        of that."""


class OurScaler:
    """The product's decider, which learns of demand as the gateway reports it.

    It knows how long a start takes, since on a platform the roll-out's start precedes all requests;
    or what a decider has learnt there (`memory`). Raises MemoryInvalid.
    """

    def __init__(
        self,
        policy: Policy,
        cold_start_s: float,
        now: float,
        memory: Mapping[str, Any] | None = None,
    ) -> None:
        self._decider = Decider(policy, now=now, memory=memory)
        if memory is None:
            self._decider.record_cold_start(cold_start_s)
        self._reported = 0
        """The number of requests in the last report."""
        self._peak = 0
        """The largest number of requests at once since the last report."""

    def changed(self, total: int, live: int, now: float) -> float:
        self._peak = max(self._peak, total)
        return now if total and not self._reported else now + REPORT_S

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        self._reported = demand.total
        self._decider.observe(demand, now, self._peak)
        self._peak = 0
        return self._decider.decide(replicas, now)

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        self._decider.record_cold_start(cold_start_s)
        return now
