"""The demand that deciders saw, thinned out: enough to play a deployment's past demand again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hotplate.autoscaler.policy import Replicas
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.store.records import DemandRecord
from hotplate.serving.gateway.protocol.routes import RouteDemand

SAMPLE_S = 1.0
"""At most one record of a service in this time; the arrivals of those left out are in the next."""
UNWRITTEN_S = 60.0
"""How long records may wait to be written together: each time is a synchronous write, and a crash
costs at most this much of the log."""
UNWRITTEN_MAX = 500


@dataclass
class _LastDemand:
    """Of one service, the last time."""

    completed: int
    total: int
    since: float
    """When the record began that is still being added to, loop seconds."""


@dataclass
class DemandLog:
    """Of one deployment. Records have the wall clock's time, for people and for other machines;
    what is due when goes by the loop's, as the wall clock may be set."""

    unwritten: list[DemandRecord] = field(default_factory=list)
    _waits_since: float = 0.0
    """When the first of them was noted, loop seconds."""
    _previous: dict[WorkloadKey, _LastDemand] = field(default_factory=dict)

    def note(
        self,
        key: WorkloadKey,
        demand: RouteDemand | None,
        there: Replicas,
        now: float,
        wall: float,
    ) -> None:
        """`demand` is what gateways say now; None = they are not heard. `now` in loop seconds,
        `wall` in Unix seconds."""
        if demand is None:
            return
        previous = self._previous.get(key)
        arrived = _arrived(demand, previous)
        if previous is not None and not arrived and previous.total == demand.demand:
            return
        record = DemandRecord(
            at=datetime.fromtimestamp(wall, UTC),
            revision=key.revision,
            service=key.service,
            arrived=arrived,
            in_flight=demand.in_flight,
            queued=demand.queued,
            service_s=demand.service_s,
            ready=there.ready,
            starting=len(there.starting_at),
        )
        since = now
        if previous is not None and now - previous.since < SAMPLE_S:
            last = self._last(key)
            if last is not None:
                record = replace(record, arrived=arrived + self.unwritten.pop(last).arrived)
                since = previous.since
        if not self.unwritten:
            self._waits_since = now
        self.unwritten.append(record)
        self._previous[key] = _LastDemand(demand.completed, demand.demand, since)

    def _last(self, key: WorkloadKey) -> int | None:
        """Where the last record of a service is, if it is unwritten yet."""
        for turn in range(len(self.unwritten) - 1, -1, -1):
            record = self.unwritten[turn]
            if (record.revision, record.service) == (key.revision, key.service):
                return turn
        return None

    def due(self, now: float) -> float | None:
        """When what is unwritten is to be written, loop seconds; None = there is nothing."""
        if not self.unwritten:
            return None
        if len(self.unwritten) >= UNWRITTEN_MAX:
            return now
        return self._waits_since + UNWRITTEN_S

    def taken(self) -> list[DemandRecord]:
        """What is unwritten, to be written now."""
        records, self.unwritten = self.unwritten, []
        return records


def _arrived(demand: RouteDemand, previous: _LastDemand | None) -> int:
    """Requests that came since: what has ended more, and what is there more.

    A gateway that counts from the beginning again has been started again.
    """
    if previous is None or demand.completed < previous.completed:
        return demand.demand
    return max(0, demand.completed - previous.completed + demand.demand - previous.total)
