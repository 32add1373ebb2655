"""How many replicas there should be: rules make claims, the largest one wins and gives the reason.

Demand claims what should serve it now, as far as it is granted; the lower bound claims itself;
keep-alive claims the replicas whose demand may soon come back; a restarted gateway claims what
there was. README.md of the autoscaler tells the rule as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Cause, Decision, Demand, Policy, Replicas
from hotplate.autoscaler.rules.demand import Wishes
from hotplate.autoscaler.rules.headroom import Spare
from hotplate.autoscaler.rules.keepalive import KeepAlive
from hotplate.autoscaler.rules.levels import Levels
from hotplate.autoscaler.rules.proposal import Claim, larger, seconds
from hotplate.autoscaler.rules.scale_rate import Restraint
from hotplate.autoscaler.rules.waiting_cost import price_of

RESTART_S = 60.0
"""How long the count does not fall after the gateway restarted: clients need time to come back."""


class _Least(NamedTuple):
    """The lower bound now, and who set it."""

    replicas: int
    source: str
    until: float = math.inf


class Decider:
    """Decides for one service of one revision. Pure: no clock, no I/O; same calls, same answers.

    `now` is the event loop's time and never goes back. Call `observe` on every change of what the
    gateway counts, and `decide` after it, when replicas change, and by `Decision.next_at`.

    `memory` is what an earlier decider of the service had learnt (its `memory()`); raises
    `MemoryInvalid` if it is something else.
    """

    def __init__(
        self, policy: Policy, *, now: float, memory: Mapping[str, Any] | None = None
    ) -> None:
        self._policy = policy
        self._most = policy.max_replicas
        self._window_s, self._down_source = policy.down_window_s, policy.down_source
        self._ours, self._documented = policy.is_ours, policy.says_how_to_go_up
        self._price_s = policy.price_gpu_s
        memory = memory or {}
        self._keep_alive, cold_starts_s, service_s, proven = _recall(memory, now)
        self._spare = Spare.from_json(_by_level(memory, "spare"), now, policy.max_replicas)
        self._wishes = Wishes(policy, cold_starts_s, service_s)
        self._levels = Levels(self._keep_s, self._keep_alive, proven)
        self._demand: Demand | None = None
        self._restarted_at = -math.inf
        self._least = _Least(policy.min_replicas, f"min_replicas is {policy.min_replicas}")
        self._restraint: Restraint | None = None
        self._desired = 0

    def observe(self, demand: Demand | None, now: float, peak: int = 0) -> None:
        """What the gateway counts from `now` on; None = it is no longer heard.

        `peak` is the most requests that there were at once since the last call. A gateway that
        reports some time after a change sees no overlap that is shorter, and a stream that needs
        two replicas for a part of each second would look as if one were enough.
        """
        if demand is None or self._demand is None:
            self._levels.forget()
            self._spare.forget()
        self._demand = demand
        if demand is not None:
            self._wishes.observe(demand, now)
            level, reached = self._wishes.level, self._wishes.level_of(peak)
            if reached > level:
                self._levels.want(reached, now)
                self._spare.demand(reached, now)
            self._levels.want(level, now)
            self._spare.demand(level, now)

    def ready_after(self, cold_start_s: float) -> None:
        """A replica became ready this long after its start began, seconds."""
        self._wishes.ready_after(cold_start_s)

    def hold(self, replicas: int, rule: str, until: float) -> None:
        """A schedule's rule asks for so many at least, until then (loop seconds; inf = for good).

        `min_replicas` is the least still; in force from the next decision on.
        """
        least = self._policy.min_replicas
        if replicas > least:
            self._least = _Least(replicas, f"the schedule '{rule}' says {replicas}", until)
        else:
            self._least = _Least(least, f"min_replicas is {least}", until)

    def price(self, price_gpu_s: float) -> None:
        """From now on one avoided cold start is worth so many GPU-seconds; at least 0."""
        self._price_s = self._wishes.price_s = price_gpu_s

    def serve(self, concurrency: int) -> None:
        """From the next demand on a replica has so many slots; what they are in a policy is what
        it begins with."""
        self._wishes.concurrency = concurrency

    def gateway_restarted(self, now: float) -> None:
        """The gateway lost its counts and its clients; for a minute the count does not fall."""
        self._restarted_at = now
        self._levels.forget()
        self._spare.forget()

    @property
    def cold_start_s(self) -> float:
        """Median of the last cold starts, seconds; a guess before the first."""
        return self._wishes.cold_start_s

    def memory(self, now: float) -> dict[str, Any]:
        """What was learnt, as JSON: for the next decider of this service, or after a restart."""
        return {
            "keep_alive": self._keep_alive.to_json(now),
            "spare": self._spare.to_json(now),
            "proven_replicas": self._levels.proven,
            "cold_starts_s": [round(s, 3) for s in self._wishes.cold_starts_s],
            "service_s": round(self._wishes.service_s, 4),
        }

    def decide(self, replicas: Replicas, now: float) -> Decision:
        """How many replicas there should be, where `replicas` is what lives now."""
        live = replicas.live
        if self._restraint is None:
            self._restraint = Restraint(self._policy, live, now)
            self._desired = live
        if self._demand is None:
            decision = self._unheard(live)
        else:
            decision = self._decide(self._demand, self._restraint, replicas, live, now)
        if decision.desired != self._desired:
            self._desired = decision.desired
            self._restraint.decided(decision.desired, now)
        return decision

    def _unheard(self, live: int) -> Decision:
        desired = min(max(self._desired, self._least.replicas), self._policy.max_replicas)
        return Decision(
            desired,
            lambda: f"{live} of {desired}: no report from the gateway, the count stays",
            Cause.NO_REPORT,
        )

    def _decide(
        self, demand: Demand, restraint: Restraint, replicas: Replicas, live: int, now: float
    ) -> Decision:
        wishes, levels, most, least = self._wishes, self._levels, self._most, self._least
        wish = wishes.claim(demand, replicas, live, now)
        wanted = wish.replicas if wish.replicas < most else most
        if wanted < wishes.level:
            wanted = wishes.level
        if wanted != levels.wanted:
            levels.want(wanted, now)
        current = live if live > self._desired else self._desired
        if self._ours and current > live and current > wanted:
            # Some were never made, for want of room: nobody keeps what is not there.
            current = live if live > wanted else wanted
        kept = self._kept(current, now)
        if self._ours and self._spare.is_due:
            spare = self._spare.claim(live, wishes.pace, self._price_s, now)
            if spare.replicas > current:
                levels.renew(spare.replicas, now)
            kept = larger(kept, spare)
        claim = kept if kept.replicas > wish.replicas else wish
        if self._documented or not least.replicas < claim.replicas == live == self._desired:
            claim = self._settle(wish, kept, restraint, live, now)
        desired, limit = claim.replicas, ""
        if desired > most:
            desired, limit = most, f"; max_replicas is {most}"
        elif desired < live:
            limit = f"; {self._ended(live, now)}"
        next_at = min(claim.next_at, least.until, wishes.next_at(demand, replicas, live, now))
        # How many nothing needs now; just after a restart nobody can tell.
        needed = wish.replicas if wish.replicas > least.replicas else least.replicas
        known = desired > needed and now >= self._restarted_at + RESTART_S
        return Decision(
            desired,
            lambda: f"{live} of {desired}: {claim.why()}{limit}",
            claim.cause,
            next_at if next_at < math.inf else None,
            desired - needed if known else 0,
        )

    def _settle(
        self, wish: Claim, kept: Claim, restraint: Restraint, live: int, now: float
    ) -> Claim:
        """The largest claim, where demand has as much of its wish as it is granted."""
        # The first replica is never held back: a window or `disabled` says how to scale, and a
        # deployment at zero that nothing wakes could not answer at all.
        floor = max(live, self._desired, 1 if self._wishes.total else 0)
        granted = restraint.grant(wish, floor, self._levels.proven, now)
        claim = granted
        if self._least.replicas > claim.replicas:
            claim = self._minimum()
        claim = larger(claim, kept)
        if now < self._restarted_at + RESTART_S:
            claim = larger(claim, self._restart(now))
        if granted.next_at < claim.next_at:
            claim = claim._replace(next_at=granted.next_at)
        return claim

    def _minimum(self) -> Claim:
        least = self._least
        return Claim(
            least.replicas,
            Cause.MINIMUM,
            lambda: f"no demand for more, {least.source}",
            least.until,
        )

    def _kept(self, current: int, now: float) -> Claim:
        """The replicas with demand, and those that are kept for theirs to come back."""
        if self._levels.wanted >= current:
            return Claim(current, Cause.FITS, _demand_fits)
        replicas, idle, level, until = self._levels.kept(current, now)
        if idle is None:
            return Claim(replicas, Cause.FITS, _demand_fits)
        source = self._down_source

        def why() -> str:
            who = "idle" if current == 1 else f"replica {level} idle"
            ends = "kept" if math.isinf(idle.until) else f"kept until {seconds(idle.kept_s)}"
            return f"{who} for {seconds(now - idle.since)}, {ends} ({source})"

        return Claim(replicas, Cause.KEPT, why, until)

    def _ended(self, live: int, now: float) -> str:
        """Why there should be fewer than live: the highest level that is kept no longer."""
        for level in range(live, self._levels.wanted, -1):
            idle = self._levels.idle(level, now)
            if idle.until <= now:
                return (
                    f"replica {level} idle for {seconds(now - idle.since)}, "
                    f"kept for {seconds(idle.kept_s)} ({self._down_source})"
                )
        return ""

    def _restart(self, now: float) -> Claim:
        ends_at = self._restarted_at + RESTART_S
        ago_s = now - self._restarted_at
        return Claim(
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
        price_s = price_of(level, self._wishes.pace, self._price_s)
        return self._keep_alive.tau_s(level, price_s, now)


def _demand_fits() -> str:
    return "demand fits"


def _recall(memory: Mapping[str, Any], now: float) -> tuple[KeepAlive, list[float], float, int]:
    """What `Decider.memory` wrote."""
    cold_starts_s = memory.get("cold_starts_s", [])
    if not isinstance(cold_starts_s, list) or not all(
        isinstance(s, int | float) and 0 < s < math.inf for s in cold_starts_s
    ):
        raise MemoryInvalid("cold_starts_s is not a list of seconds; start without it")
    service_s = memory.get("service_s", 0.0)
    if not isinstance(service_s, int | float) or not 0 <= service_s < math.inf:
        raise MemoryInvalid(f"service_s {service_s!r} is no number of seconds; start without it")
    proven = memory.get("proven_replicas", 0)
    if not isinstance(proven, int) or proven < 0:
        raise MemoryInvalid(f"proven_replicas {proven!r} is no number of replicas; start without")
    keep_alive = KeepAlive.from_json(_by_level(memory, "keep_alive"), now)
    return keep_alive, cold_starts_s, service_s, proven


def _by_level(memory: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = memory.get(name, {})
    if not isinstance(found, dict):
        raise MemoryInvalid(f"{name} is not weights by level; start without it")
    return found
