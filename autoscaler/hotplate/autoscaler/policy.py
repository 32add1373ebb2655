"""What a user may say about scaling, and what a decision looks like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Scaling of one service of one revision, resolved from the deployment's fields."""

    min_replicas: int = 1
    max_replicas: int = 1
    concurrency: int = 1
    """Slots of one replica."""
    scale_up_window_s: float | None = None
    """What the user wrote as `scale_up_stabilization_window`; None = ours."""
    scale_down_window_s: float | None = None
    """What the user wrote as `scale_down_stabilization_window`; None = ours (priced keep-alive)."""
    scale_up_behavior: str | None = None
    """`fast`, `stable` or `disabled`, if the user wrote one."""
    scale_down_behavior: str | None = None
    price_gpu_s: float = 600.0
    """GPU-seconds that one avoided cold start is worth."""


@dataclass(frozen=True)
class Replicas:
    """How many replicas there are, as the decider sees them."""

    ready: int = 0
    starting_at: tuple[float, ...] = ()
    """When each starting replica began to start (loop seconds)."""

    @property
    def live(self) -> int:
        return self.ready + len(self.starting_at)


@dataclass(frozen=True)
class Demand:
    """What the gateway counted."""

    in_flight: int = 0
    queued: int = 0
    service_s: float = 0.0
    """Mean time of a request in its replica; 0 = not known."""

    @property
    def total(self) -> int:
        return self.in_flight + self.queued


@dataclass(frozen=True)
class Decision:
    """How many replicas there should be, and why, in one sentence."""

    desired: int
    reason: str
