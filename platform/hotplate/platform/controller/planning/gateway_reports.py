"""What gateways say of requests beyond how many there are, and what of it is news; pure.

A gateway puts a replica *out* that is ready by its own word and yet refuses or drops connections;
it cannot serve a route whose port another program has; and it refuses requests. All are on the
deployment's page; each change of the first two is an event, and so are refusals, added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from hotplate.platform import notices
from hotplate.platform.controller.planning import messages

EVERY_S = 60.0
"""How often at most an event says that requests of a route were refused."""


@dataclass(frozen=True)
class Ejection:
    """A replica gets no requests."""

    reason: str
    since: float
    """Unix seconds."""


@dataclass
class Refusals:
    """The requests of one route that its gateway refused."""

    counts: Mapping[str, int]
    """By error code, as its gateway said last: since that started."""
    unreported: Counter[str] = field(default_factory=Counter)
    """Those for the next event."""
    reported_at: float = -inf
    """When the last event was, loop seconds."""

    @property
    def due_at(self) -> float | None:
        """When the next event is to be; None = there is nothing to report."""
        return self.reported_at + EVERY_S if self.unreported else None

    def follow(self, counts: Mapping[str, int]) -> None:
        """Add what was refused since the last report. A gateway that started anew counts from 0."""
        for code, count in counts.items():
            known = self.counts.get(code, 0)
            if code in notices.REFUSED and count != known:
                self.unreported[code] += count - known if count > known else count
        self.counts = counts

    def take_due(self, now: float) -> Mapping[str, int]:
        """The counts for the event that is due, once; empty = none is."""
        if self.due_at is None or now < self.due_at:
            return {}
        due, self.unreported, self.reported_at = self.unreported, Counter(), now
        return due


@dataclass
class GatewayReports:
    """What the gateways have said of one deployment's replicas and routes."""

    outages: dict[str, Ejection] = field(default_factory=dict)
    """By replica."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Why a route is not served, by route."""
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """By route."""
    abandoned: Mapping[str, int] = field(default_factory=dict)
    """Handlers that go on for callers that have gone, without a slot, by replica."""

    def put_out(
        self, out: Mapping[str, str], ready: Collection[str], wall: float
    ) -> list[tuple[str, str]]:
        """Kind and sentence of each event, where replicas are `out` for these reasons. Of one that
        is not `ready` other events tell. `wall` in Unix seconds."""
        before = self.outages
        self.outages = {
            name: Ejection(reason, before[name].since if name in before else wall)
            for name, reason in sorted(out.items())
            if name in ready
        }
        fresh = [
            ("ReplicaOut", messages.put_out(name, outage.reason))
            for name, outage in self.outages.items()
            if name not in before
        ]
        back = [
            ("ReplicaIn", messages.let_in(name, wall - outage.since))
            for name, outage in before.items()
            if name in ready and name not in self.outages
        ]
        return fresh + back

    def not_served(self, errors: Mapping[str, str]) -> list[tuple[str, str]]:
        """Kind and sentence of each event, where routes are not served for these reasons."""
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

    def refused(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """What was refused, by route and code. What was before the first look is not news: an
        earlier control plane has told it."""
        for route, said in counts.items():
            if route in self.refusals:
                self.refusals[route].follow(said)
            else:
                self.refusals[route] = Refusals(said)
