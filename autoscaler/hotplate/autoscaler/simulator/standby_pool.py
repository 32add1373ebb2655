"""Empty instances that are kept ready, as the product's standby planner says."""

from __future__ import annotations

from itertools import count

from hotplate.autoscaler.standby.planner import StandbyPlanner, StandbyPolicy, Stock

TYPE = "gpu"
"""A simulation has one instance type: what a replica holds."""


class SimulatedPool:
    """The standby instances that all deployments share. Times are virtual seconds."""

    def __init__(self, policy: StandbyPolicy) -> None:
        self._policy = policy
        self._planner = StandbyPlanner(now=0.0)
        self._ready: dict[str, None] = {}
        """The ids of ready instances, the oldest first."""
        self._making: dict[str, float] = {}
        """When each instance was ordered, by id."""
        self._ids = count()
        self._at = 0.0
        self.empty_s = 0.0
        """For how long instances were empty, ordered or ready, in instance-seconds."""

    @property
    def ready(self) -> int:
        return len(self._ready)

    def take(self, now: float) -> bool:
        """Take a ready instance for a replica, if there is one."""
        self._pass(now)
        if not self._ready:
            return False
        self._ready.popitem()
        return True

    def give_up(self, now: float, younger_s: float) -> bool:
        """Give up the last ordered instance for a replica that starts in its place, if it was
        ordered at most `younger_s` ago: an older one is ready sooner than that start."""
        self._pass(now)
        if not self._making or now - next(reversed(self._making.values())) > younger_s:
            return False
        self._making.popitem()
        return True

    def started(self, organization: str, now: float, *, hit: bool) -> None:
        """A replica starts, on a ready instance or not."""
        self._planner.started(TYPE, now, hit=hit, organization=organization)

    def park(self, now: float) -> None:
        """A replica has left its instance."""
        self._pass(now)
        self._ready[f"{next(self._ids)}"] = None

    def made(self, instance: str, now: float) -> bool:
        """An ordered instance is ready; False if it was given back in the meantime."""
        since = self._making.get(instance)
        if since is None:
            return False
        self._pass(now)
        del self._making[instance]
        self._ready[instance] = None
        self._planner.refilled(TYPE, now - since)
        return True

    def plan(self, now: float, room: float) -> tuple[list[str], int]:
        """Do what the planner says. Returns the ids of newly ordered instances, at most `room`, and
        how many were given back."""
        self._pass(now)
        stock = Stock(tuple(self._ready), tuple(self._making))
        plan = self._planner.plan({TYPE: stock}, self._policy, now)[TYPE]
        for instance in plan.give_back:
            if instance in self._ready:
                del self._ready[instance]
            else:
                del self._making[instance]
        ordered = [f"{next(self._ids)}" for _ in range(int(min(plan.make, max(0.0, room))))]
        self._making.update(dict.fromkeys(ordered, now))
        return ordered, len(plan.give_back)

    def _pass(self, now: float) -> None:
        self.empty_s += (len(self._ready) + len(self._making)) * (now - self._at)
        self._at = now
