"""What the engine of a cluster is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotplate.deploy.workload import Resources


@dataclass(frozen=True)
class ClusterSettings:
    """How a cluster is used."""

    release: str = "hotplate"
    """The namespace of the installation."""
    bounds: Resources | None = None
    """What all replicas may ever have; None = the cluster adds nodes as they are needed."""
    pull_secrets: Sequence[str] = ()
    """Secrets of that namespace with which images are pulled: organizations get copies."""
    look_s: float = 5.0
    """What is wanted is compared with what there is at least this often."""
    writes_at_once: int = 16
    """How many workloads are written at the same time."""
    seen_after_s: float = 5.0
    """How long a write may take until the watch shows it; then it is made again."""
    logs_kept: int = 200
    """Of so many pods that have gone the last lines are kept."""
    log_lines: int = 100
    """How many of them."""
