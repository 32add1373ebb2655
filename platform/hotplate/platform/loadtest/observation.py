"""What the platform says of the deployment while it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Observation:
    """How the deployment was at one instant, summed up over its services."""

    at_s: float
    """Since the load test's second 0."""
    queued: int
    in_flight: int
    ready: int
    starting: int
    slots: int
    """Of all that are ready."""
    gpus: float
    """Of one replica; 0 where it uses none."""


@dataclass(frozen=True)
class ObservedRun:
    """What was seen of the deployment during the load test; empty for a bare URL."""

    observations: tuple[Observation, ...] = ()
    """In order of time, about one a second."""
    cold_starts: tuple[Mapping[str, Any], ...] = ()
    """As `/api/v1/hotplate/deployments/NAME/cold_starts` has them, those that began meanwhile."""
