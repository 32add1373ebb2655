"""What a user may say about scaling, and what a decision looks like."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

STABLE_S = 600.0
"""Window of BentoCloud's `stable`, seconds."""


class Behavior(StrEnum):
    """BentoCloud's scaling behaviours."""

    FAST = "fast"
    """No window; up by at most +100 % or +4 replicas per 15 s, whichever is more."""
    STABLE = "stable"
    """A window of 600 s; up by at most +100 % per 15 s."""
    DISABLED = "disabled"
    """No scaling in that direction."""


@dataclass(frozen=True)
class Policy:
    """Scaling of one service of one revision, resolved from the deployment's fields."""

    min_replicas: int = 1
    max_replicas: int = 1
    concurrency: int = 1
    """How many slots one replica has."""
    scale_up_window_s: float | None = None
    """What the user wrote as `scale_up_stabilization_window`; None = ours."""
    scale_down_window_s: float | None = None
    """What the user wrote as `scale_down_stabilization_window`; None = ours (priced keep-alive)."""
    scale_up_behavior: Behavior | None = None
    """What the user wrote as `scale_up_behavior`; None = ours."""
    scale_down_behavior: Behavior | None = None
    """What the user wrote as `scale_down_behavior`; None = ours."""
    price_gpu_s: float = 600.0
    """GPU-seconds that one avoided cold start is worth; more keeps idle replicas longer."""

    @property
    def sets_scale_up(self) -> bool:
        """Whether the user wrote how to scale up, so that BentoCloud's formula holds and not
        ours."""
        return self.scale_up_window_s is not None or self.scale_up_behavior is not None

    @property
    def is_default(self) -> bool:
        """Whether the user wrote neither how to scale up nor down, so that all our rules hold."""
        return not self.sets_scale_up and self.down_window_s is None

    @property
    def up_window_s(self) -> float:
        """Seconds over which the lowest proposal counts on the way up."""
        if self.scale_up_window_s is not None:
            return self.scale_up_window_s
        return STABLE_S if self.scale_up_behavior is Behavior.STABLE else 0.0

    @property
    def down_window_s(self) -> float | None:
        """Seconds over which the highest proposal counts on the way down; None = priced."""
        if self.scale_down_behavior is Behavior.DISABLED:
            return math.inf
        if self.scale_down_window_s is not None or self.scale_down_behavior is None:
            return self.scale_down_window_s
        return STABLE_S if self.scale_down_behavior is Behavior.STABLE else 0.0

    @property
    def up_source(self) -> str:
        """Which field set `up_window_s`, for a decision's reason."""
        if self.scale_up_window_s is not None:
            return "scale_up_stabilization_window"
        return f"scale_up_behavior {self.scale_up_behavior}"

    @property
    def down_source(self) -> str:
        """Which field set `down_window_s`, for a decision's reason."""
        if self.scale_down_behavior is Behavior.DISABLED:
            return "scale_down_behavior disabled"
        if self.scale_down_window_s is not None:
            return "scale_down_stabilization_window"
        if self.scale_down_behavior is not None:
            return f"scale_down_behavior {self.scale_down_behavior}"
        return "priced keep-alive"


class Replicas(NamedTuple):
    """How many replicas there are, for the decider; draining ones do not count."""

    ready: int = 0
    starting_at: tuple[float, ...] = ()
    """When each starting replica began to start (loop seconds)."""

    @property
    def live(self) -> int:
        return self.ready + len(self.starting_at)


class Demand(NamedTuple):
    """What the gateway counted; with several gateways, their sum."""

    in_flight: int = 0
    queued: int = 0
    service_s: float = 0.0
    """Mean time of a request in its replica, seconds; 0 = not known."""
    oldest_at: float | None = None
    """Since when the request that has its slot for longest has it, loop seconds; None = none has
    one, or the gateway does not say so."""
    completed: int = 0
    """Requests that have ended since the gateway started."""

    @property
    def total(self) -> int:
        return self.in_flight + self.queued


class Cause(StrEnum):
    """Which rule set the number of replicas."""

    NO_REPORT = "no_report"
    """The gateway does not report: the count stays."""
    RESTART = "gateway_restart"
    """The gateway has just restarted: the count does not fall."""
    WAKE = "wake"
    """Demand found no replica."""
    QUEUED = "held"
    """Queued requests would wait longer than a new replica takes."""
    DEMAND = "demand"
    """Demand is above what the replicas should carry."""
    HEADROOM = "spare"
    """Demand usually rises further after such a rise."""
    FITS = "fits"
    """This many replicas carry the demand."""
    KEPT = "kept"
    """Idle replicas are kept until their demand comes back."""
    MINIMUM = "min_replicas"
    """The lower bound."""
    IDLE = "idle"
    """There is no demand, and its replicas were kept long enough."""


@dataclass(slots=True)
class Decision:
    """How many replicas there should be, and why. A decision is never changed; it is not frozen
    because freezing triples the cost of making one, and a simulation makes millions."""

    desired: int
    why: Callable[[], str] = field(compare=False, repr=False)
    """Makes the text of `reason`, which is never read of most decisions."""
    cause: Cause = Cause.FITS
    """The winning rule. It may change with every request where several rules propose the same
    number."""
    next_at: float | None = None
    """Decide again by then (loop seconds) even if nothing changes; None = only on a change."""
    kept: int = 0
    """How many of them are idle and only kept until their demand comes back."""

    @property
    def reason(self) -> str:
        """The reason, in one sentence."""
        return self.why()
