"""What gateways report beyond the number of requests, and which changes of it are events; pure.

A gateway ejects a replica that reports itself ready and yet refuses or drops connections; it cannot
serve a route whose port another program uses; and it refuses requests. The deployment's page shows
all three. Each change of the first two is an event; refusals are added up into one event a minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from hotplate.platform import notices
from hotplate.platform.controller.planning import messages

EVERY_S = 60.0
"""The shortest time between two events about refused requests of one route."""


@dataclass(frozen=True)
class Ejection:
    """Why and since when a replica gets no requests."""

    reason: str
    since: float
    """Unix seconds."""


@dataclass
class Refusals:
    """The requests of one route that its gateway refused."""

    counts: Mapping[str, int]
    """By error code, since the gateway started, as of its last report."""
    unreported: Counter[str] = field(default_factory=Counter)
    """By error code, since the last event."""
    reported_at: float = -inf
    """The time of the last event, loop seconds."""

    @property
    def due_at(self) -> float | None:
        """When the next event is due; None = there is nothing to report."""
        return self.reported_at + EVERY_S if self.unreported else None

    def update(self, counts: Mapping[str, int]) -> None:
        """Add the refusals since the last report. A gateway that restarted counts from 0 again."""
        for code, count in counts.items():
            known = self.counts.get(code, 0)
            if code in notices.REFUSED and count != known:
                self.unreported[code] += count - known if count > known else count
        self.counts = counts

    def take_due(self, now: float) -> Mapping[str, int]:
        """The counts for the event that is due, which are returned once; empty = none is due."""
        if self.due_at is None or now < self.due_at:
            return {}
        due, self.unreported, self.reported_at = self.unreported, Counter(), now
        return due


@dataclass
class GatewayReports:
    """What the gateways have reported of one deployment's replicas and routes."""

    ejections: dict[str, Ejection] = field(default_factory=dict)
    """By replica."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Why a route is not served, by route."""
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """By route."""
    abandoned: Mapping[str, int] = field(default_factory=dict)
    """By replica, handlers that still run for callers that have gone; they take no slot."""

    def update_ejections(
        self, out: Mapping[str, str], ready: Collection[str], wall: float
    ) -> list[tuple[str, str]]:
        """Kind and sentence of each event. `out`: the reasons of the ejected replicas; of those
        that are not `ready`, other events are recorded. `wall`: Unix seconds."""
        before = self.ejections
        self.ejections = {
            name: Ejection(reason, before[name].since if name in before else wall)
            for name, reason in sorted(out.items())
            if name in ready
        }
        fresh = [
            ("ReplicaOut", messages.ejected(name, ejection.reason))
            for name, ejection in self.ejections.items()
            if name not in before
        ]
        back = [
            ("ReplicaIn", messages.restored(name, wall - ejection.since))
            for name, ejection in before.items()
            if name in ready and name not in self.ejections
        ]
        return fresh + back

    def update_unserved(self, errors: Mapping[str, str]) -> list[tuple[str, str]]:
        """Kind and sentence of each event. `errors`: why routes are not served, by route."""
        before, self.unserved = self.unserved, dict(errors)
        fresh = [
            ("RouteUnserved", f"{route} cannot be called: {error}")
            for route, error in sorted(errors.items())
            if route not in before
        ]
        back = [
            ("RouteServed", f"{route} can be called again")
            for route in sorted(before.keys() - errors.keys())
        ]
        return fresh + back

    def update_refusals(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """The refusals by route and code. Those before the first report are not new: an earlier
        control plane has recorded them."""
        for route, by_code in counts.items():
            if route in self.refusals:
                self.refusals[route].update(by_code)
            else:
                self.refusals[route] = Refusals(by_code)
