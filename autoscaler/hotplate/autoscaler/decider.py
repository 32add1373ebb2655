"""How many replicas there should be: rules propose, and the largest proposal gives the reason.

Demand proposes the replicas that should serve it now, within the scale rate; the lower bound
proposes itself; keep-alive proposes the replicas whose demand may soon come back; after a restart
of the gateway, the last number is proposed. The autoscaler's README describes the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Cause, Decision, Demand, Policy, Replicas
from hotplate.autoscaler.rules.demand import DemandRule
from hotplate.autoscaler.rules.headroom import Headroom
from hotplate.autoscaler.rules.keepalive import KeepAlive
from hotplate.autoscaler.rules.levels import Levels
from hotplate.autoscaler.rules.proposal import Proposal, larger, seconds
from hotplate.autoscaler.rules.scale_rate import ScaleRate
from hotplate.autoscaler.rules.waiting_cost import price_at_level

RESTART_S = 60.0
"""How long the count does not fall after a restart of the gateway: clients need time to return."""


class _Least(NamedTuple):
    """The lower bound now, and what set it."""

    replicas: int
    source: str
    until: float = math.inf


class Decider:
    """Decides for one service of one revision. It is pure: no clock, no I/O; the same calls give
    the same decisions.

    `now` is the event loop's time and never goes back. Call `observe` on every change of what the
    gateway counts, and `decide` after that, when replicas change, and at `Decision.next_at`.

    `memory` is what an earlier decider of the service learnt (its `memory()`). Raises
    `MemoryInvalid` if it is anything else.
    """

    def __init__(
        self, policy: Policy, *, now: float, memory: Mapping[str, Any] | None = None
    ) -> None:
        self._policy = policy
        self._max_replicas = policy.max_replicas
        self._window_s, self._down_source = policy.down_window_s, policy.down_source
        self._is_default, self._sets_scale_up = policy.is_default, policy.sets_scale_up
        self._price_s = policy.price_gpu_s
        memory = memory or {}
        self._keep_alive, cold_starts_s, service_s, proven = _recall(memory, now)
        self._headroom = Headroom.from_json(
            _weights_by_level(memory, "spare"), now, policy.max_replicas
        )
        self._demand_rule = DemandRule(policy, cold_starts_s, service_s)
        self._levels = Levels(self._keep_s, self._keep_alive, proven)
        self._demand: Demand | None = None
        self._restarted_at = -math.inf
        self._least = _Least(policy.min_replicas, f"min_replicas is {policy.min_replicas}")
        self._scale_rate: ScaleRate | None = None
        self._desired = 0

    def observe(self, demand: Demand | None, now: float, peak: int = 0) -> None:
        """What the gateway counts from `now` on; None = it no longer reports.

        `peak` is the largest number of concurrent requests since the last call. Without it a
        report that comes some time after a change would miss shorter overlaps, and a stream that
        needs two replicas for a part of each second would seem to need one.
        """
        if demand is None or self._demand is None:
            self._levels.forget()
            self._headroom.forget()
            self._demand_rule.forget_ages()
        self._demand = demand
        if demand is not None:
            self._demand_rule.observe(demand, now)
            level, reached = self._demand_rule.level, self._demand_rule.level_of(peak)
            if reached > level:
                self._levels.set_demand(reached, now)
                self._headroom.set_demand(reached, now)
            self._levels.set_demand(level, now)
            self._headroom.set_demand(level, now)

    def record_cold_start(self, cold_start_s: float) -> None:
        """A replica became ready this long after its start began, seconds."""
        self._demand_rule.record_cold_start(cold_start_s)

    def set_floor(self, replicas: int, rule: str, until: float) -> None:
        """A schedule's rule sets the least number of replicas until then (loop seconds; inf = for
        ever). It applies from the next decision on, and `min_replicas` still holds.
        """
        least = self._policy.min_replicas
        if replicas > least:
            self._least = _Least(replicas, f"the schedule '{rule}' says {replicas}", until)
        else:
            self._least = _Least(least, f"min_replicas is {least}", until)

    def set_price(self, price_gpu_s: float) -> None:
        """From now on one avoided cold start is worth `price_gpu_s` GPU-seconds; at least 0."""
        self._price_s = self._demand_rule.price_s = price_gpu_s

    def set_concurrency(self, concurrency: int) -> None:
        """From the next `observe` on a replica has `concurrency` slots; the policy says with how
        many it begins."""
        self._demand_rule.concurrency = concurrency

    def gateway_restarted(self, now: float) -> None:
        """The gateway lost its counts and its clients: the count does not fall for a minute."""
        self._restarted_at = now
        self._levels.forget()
        self._headroom.forget()

    @property
    def cold_start_s(self) -> float:
        """Median of the last cold starts, seconds; a guess before the first."""
        return self._demand_rule.cold_start_s

    def memory(self, now: float) -> dict[str, Any]:
        """What was learnt, as JSON, for the next decider of this service or after a restart."""
        return {
            "keep_alive": self._keep_alive.to_json(now),
            "spare": self._headroom.to_json(now),
            "proven_replicas": self._levels.proven,
            "cold_starts_s": [round(s, 3) for s in self._demand_rule.cold_starts_s],
            "service_s": round(self._demand_rule.service_s, 4),
        }

    def decide(self, replicas: Replicas, now: float) -> Decision:
        """How many replicas there should be, where `replicas` are those that there are."""
        live = replicas.live
        if self._scale_rate is None:
            self._scale_rate = ScaleRate(self._policy, live, now)
            self._desired = live
        if self._demand is None:
            decision = self._without_report(live)
        else:
            decision = self._decide(self._demand, self._scale_rate, replicas, live, now)
        if decision.desired != self._desired:
            self._desired = decision.desired
            self._scale_rate.decided(decision.desired, now)
        return decision

    def _without_report(self, live: int) -> Decision:
        desired = min(max(self._desired, self._least.replicas), self._policy.max_replicas)
        return Decision(
            desired,
            lambda: f"{live} of {desired}: no report from the gateway, the count stays",
            Cause.NO_REPORT,
        )

    def _decide(
        self, demand: Demand, scale_rate: ScaleRate, replicas: Replicas, live: int, now: float
    ) -> Decision:
        rule, levels, most = self._demand_rule, self._levels, self._max_replicas
        least = self._least
        demanded = rule.propose(demand, replicas, live, now)
        wanted = demanded.replicas if demanded.replicas < most else most
        if wanted < rule.level:
            wanted = rule.level
        if wanted != levels.demanded:
            levels.set_demand(wanted, now)
        current = live if live > self._desired else self._desired
        if self._is_default and current > live and current > wanted:
            # Some never started, for lack of capacity, so there is nothing to keep.
            current = live if live > wanted else wanted
        kept = self._kept(current, now)
        if self._is_default and self._headroom.is_due:
            ahead = self._headroom.propose(live, rule.pace, self._price_s, now)
            if ahead.replicas > current:
                levels.renew(ahead.replicas, now)
            kept = larger(kept, ahead)
        proposal = kept if kept.replicas > demanded.replicas else demanded
        if self._sets_scale_up or not least.replicas < proposal.replicas == live == self._desired:
            proposal = self._settle(demanded, kept, scale_rate, live, now)
        desired, limit = proposal.replicas, ""
        if desired > most:
            desired, limit = most, f"; max_replicas is {most}"
        elif desired < live:
            limit = f"; {self._ended(live, now)}"
        next_at = min(proposal.next_at, least.until, rule.next_at(demand, replicas, live, now))
        # What is above `needed` is only kept; just after a restart that cannot be told.
        needed = demanded.replicas if demanded.replicas > least.replicas else least.replicas
        known = desired > needed and now >= self._restarted_at + RESTART_S
        return Decision(
            desired,
            lambda: f"{live} of {desired}: {proposal.why()}{limit}",
            proposal.cause,
            next_at if next_at < math.inf else None,
            desired - needed if known else 0,
        )

    def _settle(
        self, demanded: Proposal, kept: Proposal, scale_rate: ScaleRate, live: int, now: float
    ) -> Proposal:
        """The largest proposal, where that of demand is limited by the scale rate."""
        # The first replica is never limited: a window or `disabled` says how to scale, and a
        # deployment at zero that nothing wakes could not respond at all.
        floor = max(live, self._desired, 1 if self._demand_rule.total else 0)
        granted = scale_rate.grant(demanded, floor, self._levels.proven, now)
        proposal = granted
        if self._least.replicas > proposal.replicas:
            proposal = self._minimum()
        proposal = larger(proposal, kept)
        if now < self._restarted_at + RESTART_S:
            proposal = larger(proposal, self._restart(now))
        if granted.next_at < proposal.next_at:
            proposal = proposal._replace(next_at=granted.next_at)
        return proposal

    def _minimum(self) -> Proposal:
        least = self._least
        return Proposal(
            least.replicas,
            Cause.MINIMUM,
            lambda: f"no demand for more, {least.source}",
            least.until,
        )

    def _kept(self, current: int, now: float) -> Proposal:
        """The replicas with demand, and those that are kept until their demand comes back."""
        if self._levels.demanded >= current:
            return Proposal(current, Cause.FITS, _demand_fits)
        replicas, idle, level, until = self._levels.kept(current, now)
        if idle is None:
            return Proposal(replicas, Cause.FITS, _demand_fits)
        source = self._down_source

        def why() -> str:
            name = "idle" if current == 1 else f"replica {level} idle"
            ends = "kept" if math.isinf(idle.until) else f"kept until {seconds(idle.kept_s)}"
            return f"{name} for {seconds(now - idle.since)}, {ends} ({source})"

        return Proposal(replicas, Cause.KEPT, why, until)

    def _ended(self, live: int, now: float) -> str:
        """Why there should be fewer than `live`: the highest level that is no longer kept."""
        for level in range(live, self._levels.demanded, -1):
            idle = self._levels.idle(level, now)
            if idle.until <= now:
                return (
                    f"replica {level} idle for {seconds(now - idle.since)}, "
                    f"kept for {seconds(idle.kept_s)} ({self._down_source})"
                )
        return ""

    def _restart(self, now: float) -> Proposal:
        ends_at = self._restarted_at + RESTART_S
        ago_s = now - self._restarted_at
        return Proposal(
            self._desired,
            Cause.RESTART,
            lambda: (
                f"the gateway restarted {seconds(ago_s)} ago, "
                f"the count does not fall for {seconds(RESTART_S)}"
            ),
            ends_at,
        )

    def _keep_s(self, level: int, now: float) -> float:
        if self._window_s is not None:
            return self._window_s
        price_s = price_at_level(level, self._demand_rule.pace, self._price_s)
        return self._keep_alive.tau_s(level, price_s, now)


def _demand_fits() -> str:
    return "demand fits"


def _recall(memory: Mapping[str, Any], now: float) -> tuple[KeepAlive, list[float], float, int]:
    """Keep-alive, cold starts, service time and proven replicas, as `Decider.memory` wrote them."""
    cold_starts_s = memory.get("cold_starts_s", [])
    if not isinstance(cold_starts_s, list) or not all(
        isinstance(s, int | float) and 0 < s < math.inf for s in cold_starts_s
    ):
        raise MemoryInvalid("cold_starts_s is not a list of seconds; start without it")
    service_s = memory.get("service_s", 0.0)
    if not isinstance(service_s, int | float) or not 0 <= service_s < math.inf:
        raise MemoryInvalid(f"service_s {service_s!r} is not seconds from 0 on; start without it")
    proven = memory.get("proven_replicas", 0)
    if not isinstance(proven, int) or proven < 0:
        raise MemoryInvalid(
            f"proven_replicas {proven!r} is not a whole number from 0 on; start without it"
        )
    keep_alive = KeepAlive.from_json(_weights_by_level(memory, "keep_alive"), now)
    return keep_alive, cold_starts_s, service_s, proven


def _weights_by_level(memory: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = memory.get(name, {})
    if not isinstance(found, dict):
        raise MemoryInvalid(f"{name} is not weights by level; start without it")
    return found
