"""How many empty instances to keep ready, per instance type, so that starts find one.

A start *needs n* when it is the n-th within one refill time, the time from ordering an instance
until it is ready: so many must have been ready before for this one to find its own. Of each type
as many are wanted as nine of ten starts of the last seven days needed, and at least the scaling
step. An instance that a replica leaves is parked, so it is standby at once, and only given back
when it is not wanted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.rules.proposal import seconds
from hotplate.autoscaler.standby.start_history import HISTORY_S, StartHistory

TYPES_KEPT = 1000
"""Instance types of which starts are remembered; of more, those used last."""


@dataclass(frozen=True)
class StandbyPolicy:
    """What an operator allows; of all types together where not said otherwise."""

    step: int = 1
    """Instances by which a deployment scales at once: at least so many per type in use."""
    share: float = 0.9
    """Of the starts, how many should find an instance ready."""
    max_instances: float = math.inf
    memory_bytes: float = math.inf
    unused_s: float = HISTORY_S
    """A type without a start for this long wants none."""
    min_starts: int = 1
    """A type with fewer starts in seven days wants none."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Per type, a number that holds instead of what was learnt."""


@dataclass(frozen=True)
class Stock:
    """What there is of one instance type, as ids, the oldest first."""

    ready: tuple[str, ...] = ()
    """Empty and ready, parked ones among them."""
    making: tuple[str, ...] = ()
    """On their way to be ready."""
    memory_bytes: int = 0
    """What one costs while it is kept."""


@dataclass(frozen=True)
class TypePlan:
    """What to do about one instance type, and why."""

    wanted: int
    make: int
    """How many more to make ready."""
    keep: tuple[str, ...]
    """Of those that there are, also those on their way."""
    give_back: tuple[str, ...]
    reason: str


@dataclass
class _StandbyProposal:
    """How many a type should have, and how many it gets within the bounds."""

    wanted: int
    reason: str
    organizations: Mapping[str, int]
    starts: int
    memory_bytes: int
    granted: int = 0
    bound: str = ""
    """Which bound keeps it below `wanted`."""


class StandbyPlanner:
    """Plans for all instance types of a cluster, or of one machine. Pure: no clock, no I/O.

    Call `started` for each start of a replica, `refilled` when an instance has been made ready,
    and `plan` after that, when an instance is released, and every minute. `now` never goes back.
    `memory` is what an earlier planner had learnt (its `memory()`); raises `MemoryInvalid` if it
    is something else.
    """

    def __init__(self, now: float, memory: Mapping[str, Any] | None = None) -> None:
        self._types: dict[str, StartHistory] = {}
        """Those used last at the end."""
        for instance_type, data in (memory or {}).items():
            try:
                self._types[instance_type] = StartHistory.from_json(data, now)
            except MemoryInvalid as error:
                raise MemoryInvalid(f"standby type {instance_type!r}: {error}") from error

    def started(
        self, instance_type: str, now: float, *, hit: bool = False, organization: str = ""
    ) -> None:
        """A replica starts on an instance of this type; `hit` = on one that was standby."""
        history = self._types.pop(instance_type, None) or StartHistory()
        self._types[instance_type] = history
        history.started(now, hit, organization)
        if len(self._types) > TYPES_KEPT:
            del self._types[next(iter(self._types))]

    def refilled(self, instance_type: str, refill_s: float) -> None:
        """An instance of this type was ready so long after it was ordered."""
        if instance_type in self._types:
            self._types[instance_type].refilled(refill_s)

    def history(self, instance_type: str) -> StartHistory:
        """What is known of a type's starts; an empty one of a type that was never used."""
        return self._types.get(instance_type) or StartHistory()

    def plan(
        self,
        stocks: Mapping[str, Stock],
        policy: StandbyPolicy,
        now: float,
        allowances: Mapping[str, int] | None = None,
    ) -> dict[str, TypePlan]:
        """What to do about each type in `stocks`, and each that had starts or a fixed number.

        `allowances` says how many standby instances an organization's starts may use; one that
        it does not name has no limit. Each type gets its first before any gets its second; those
        with more starts go first.
        """
        names = dict.fromkeys((*policy.fixed, *reversed(self._types), *stocks))
        proposals = {
            name: self._propose(name, stocks.get(name, Stock()), policy, now) for name in names
        }
        _grant(proposals, policy, dict(allowances or {}))
        return {
            name: _type_plan(proposal, stocks.get(name, Stock()))
            for name, proposal in proposals.items()
        }

    def memory(self, now: float) -> dict[str, Any]:
        """What was learnt, as JSON; the time until it is read again does not age it."""
        return {name: history.to_json(now) for name, history in self._types.items()}

    def _propose(
        self, name: str, stock: Stock, policy: StandbyPolicy, now: float
    ) -> _StandbyProposal:
        history = self.history(name)
        wanted, reason = _wanted(name, history, policy, now)
        organizations = history.organizations(now)
        return _StandbyProposal(
            wanted, reason, organizations, sum(organizations.values()), stock.memory_bytes
        )


def _wanted(name: str, history: StartHistory, policy: StandbyPolicy, now: float) -> tuple[int, str]:
    if name in policy.fixed:
        return policy.fixed[name], f"{policy.fixed[name]} fixed by the operator"
    idle_s = history.idle_s(now)
    if idle_s >= min(policy.unused_s, HISTORY_S):
        ago = "ever" if math.isinf(idle_s) else f"for {seconds(idle_s)}"
        return 0, f"none wanted: no start {ago}"
    if history.starts(now) < policy.min_starts:
        return 0, f"none wanted: {history.starts(now)} of {policy.min_starts} starts in 7 days"
    needed = history.needed(policy.share, now)
    if needed <= policy.step:
        return policy.step, f"{policy.step} wanted: the scaling step"
    return needed, (
        f"{needed} wanted: {policy.share:.0%} of the starts of 7 days were among the first "
        f"{needed} within one refill time, {seconds(history.refill_s)}"
    )


def _grant(
    proposals: Mapping[str, _StandbyProposal], policy: StandbyPolicy, left: dict[str, int]
) -> None:
    """Share out what the policy's budget and the organizations' allowances (`left`) permit."""
    instances, memory_bytes = policy.max_instances, policy.memory_bytes
    lacking = sorted(
        (proposal for proposal in proposals.values() if proposal.wanted),
        key=lambda proposal: -proposal.starts,
    )
    while lacking:
        still = []
        for proposal in lacking:
            payer = _payer(proposal.organizations, left)
            if instances < 1:
                proposal.bound = f"the budget is {policy.max_instances:.0f} instances"
            elif memory_bytes < proposal.memory_bytes:
                proposal.bound = (
                    f"the budget is {policy.memory_bytes / (1 << 20):.0f} MiB of memory"
                )
            elif payer is None:
                proposal.bound = (
                    f"the quota of {', '.join(sorted(proposal.organizations))} is used up"
                )
            else:
                instances -= 1
                memory_bytes -= proposal.memory_bytes
                if payer in left:
                    left[payer] -= 1
                proposal.granted += 1
                if proposal.granted < proposal.wanted:
                    still.append(proposal)
        lacking = still


def _payer(organizations: Mapping[str, int], left: Mapping[str, int]) -> str | None:
    """The organization with the most starts that may have one more; None if none may."""
    if not organizations:
        return ""
    able = [name for name in organizations if left.get(name, 1) > 0]
    return max(able, key=lambda name: (organizations[name], name)) if able else None


def _type_plan(proposal: _StandbyProposal, stock: Stock) -> TypePlan:
    """What is ready is kept before what is on its way, the youngest first."""
    there = (*reversed(stock.ready), *stock.making)
    keep, give_back = there[: proposal.granted], there[proposal.granted :]
    reason = proposal.reason
    if proposal.granted < proposal.wanted:
        reason += f"; {proposal.granted} granted, {proposal.bound}"
    return TypePlan(proposal.granted, proposal.granted - len(keep), keep, give_back, reason)
