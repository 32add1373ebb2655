"""How many empty instances to keep ready, per instance type, so that starts find one.

A start *needs n* when it is the n-th within one refill time, which is the time from ordering an
instance until it is ready: n instances must have been ready for this start to find one. Of each
type, the planner wants as many as nine of ten starts of the last seven days needed, and at least
the scaling step. When a replica ends, its instance becomes a standby at once, and is only given
back if it is not wanted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.rules.proposal import seconds
from hotplate.autoscaler.standby.start_history import HISTORY_S, StartHistory

TYPES_KEPT = 1000
"""How many instance types have a history; beyond that, the least recently used is dropped."""


@dataclass(frozen=True)
class StandbyPolicy:
    """What an operator allows; limits are over all types together unless stated otherwise."""

    step: int = 1
    """By how many instances a deployment scales at once: the least number per type in use."""
    share: float = 0.9
    """The share of starts that should find an instance ready."""
    max_instances: float = math.inf
    memory_bytes: float = math.inf
    unused_s: float = HISTORY_S
    """A type without a start for this long wants none."""
    min_starts: int = 1
    """A type with fewer starts in seven days wants none."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """By type, a number that replaces what was learnt."""
    templates: Collection[str] = ()
    """Types of which one instance serves every start: one is wanted, from the first start on."""


@dataclass(frozen=True)
class Stock:
    """The standby instances of one type, as ids, the oldest first."""

    ready: tuple[str, ...] = ()
    """Empty and ready ones, including those that replicas have left."""
    making: tuple[str, ...] = ()
    """Ordered ones that are not ready yet."""
    memory_bytes: int = 0
    """The memory that one takes while it is kept."""


@dataclass(frozen=True)
class TypePlan:
    """What to do about one instance type, and why."""

    wanted: int
    make: int
    """How many more to order."""
    keep: tuple[str, ...]
    """Existing ones to keep, ready or ordered."""
    give_back: tuple[str, ...]
    reason: str


@dataclass
class _StandbyProposal:
    """How many instances a type should have, and how many it gets within the limits."""

    wanted: int
    reason: str
    organizations: Mapping[str, int]
    starts: int
    memory_bytes: int
    granted: int = 0
    bound: str = ""
    """Which limit keeps it below `wanted`."""


class StandbyPlanner:
    """Plans for all instance types of a cluster, or of one machine. It is pure: no clock, no I/O.

    Call `started` for each start of a replica, `refilled` when an instance has been made ready,
    and `plan` after that, when an instance is released, and every minute. `now` never goes back.
    `memory` is what an earlier planner learnt (its `memory()`). Raises `MemoryInvalid` if it is
    anything else.
    """

    def __init__(self, now: float, memory: Mapping[str, Any] | None = None) -> None:
        self._types: dict[str, StartHistory] = {}
        """By type, the most recently used at the end."""
        for instance_type, data in (memory or {}).items():
            try:
                self._types[instance_type] = StartHistory.from_json(data, now)
            except MemoryInvalid as error:
                raise MemoryInvalid(f"standby type {instance_type!r}: {error}") from error

    def started(
        self, instance_type: str, now: float, *, hit: bool = False, organization: str = ""
    ) -> None:
        """A replica starts on an instance of this type; `hit`: whether it was a standby."""
        history = self._types.pop(instance_type, None) or StartHistory()
        self._types[instance_type] = history
        history.started(now, hit, organization)
        if len(self._types) > TYPES_KEPT:
            del self._types[next(iter(self._types))]

    def refilled(self, instance_type: str, refill_s: float) -> None:
        """An instance of this type was ready `refill_s` seconds after it was ordered."""
        if instance_type in self._types:
            self._types[instance_type].refilled(refill_s)

    def history(self, instance_type: str) -> StartHistory:
        """The history of a type's starts; empty for a type that was never used."""
        return self._types.get(instance_type) or StartHistory()

    def plan(
        self,
        stocks: Mapping[str, Stock],
        policy: StandbyPolicy,
        now: float,
        allowances: Mapping[str, int] | None = None,
    ) -> dict[str, TypePlan]:
        """What to do about each type that is in `stocks`, had starts, or has a fixed number.

        `allowances`: how many standby instances each organization's starts may use; an organization
        that is not in it has no limit. Every type gets its first instance before any gets its
        second; types with more starts go first.
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
        """What was learnt, as JSON; it does not age until it is read again."""
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
    if name in policy.templates:
        return 1, "1 wanted: a template, which every start is forked from"
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
    proposals: Mapping[str, _StandbyProposal], policy: StandbyPolicy, allowances: dict[str, int]
) -> None:
    """Allocate what the policy's budget and the organizations' `allowances` permit."""
    instances, memory_bytes = policy.max_instances, policy.memory_bytes
    lacking = sorted(
        (proposal for proposal in proposals.values() if proposal.wanted),
        key=lambda proposal: -proposal.starts,
    )
    while lacking:
        still = []
        for proposal in lacking:
            payer = _payer(proposal.organizations, allowances)
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
                if payer in allowances:
                    allowances[payer] -= 1
                proposal.granted += 1
                if proposal.granted < proposal.wanted:
                    still.append(proposal)
        lacking = still


def _payer(organizations: Mapping[str, int], allowances: Mapping[str, int]) -> str | None:
    """The organization with the most starts that may have one more instance; None if none may."""
    if not organizations:
        return ""
    able = [name for name in organizations if allowances.get(name, 1) > 0]
    return max(able, key=lambda name: (organizations[name], name)) if able else None


def _type_plan(proposal: _StandbyProposal, stock: Stock) -> TypePlan:
    """The plan for one type: ready instances are kept before ordered ones, the youngest first."""
    existing = (*reversed(stock.ready), *stock.making)
    keep, give_back = existing[: proposal.granted], existing[proposal.granted :]
    reason = proposal.reason
    if proposal.granted < proposal.wanted:
        reason += f"; {proposal.granted} granted, {proposal.bound}"
    return TypePlan(proposal.granted, proposal.granted - len(keep), keep, give_back, reason)
