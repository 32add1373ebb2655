"""How environments of pods are built: what an installation says of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotplate.serving.replica.pods.runtimes import RuntimeImage

PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""After a failure that another try may help; the last one again and again."""


@dataclass(frozen=True)
class EnvironmentSettings:
    """How environments are built on a cluster."""

    release: str
    """The namespace of the installation."""
    runtimes: Sequence[RuntimeImage]
    """One of each Python; the first one of a Python is what is built in, and what was built in
    another one of them goes on."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """Variables of all builds: package indexes and proxies, as `for_pod_build` gives them."""
    memory_bytes: int = 4 << 30
    """What a build may use; the pod's limit."""
    shared: bool = False
    """Whether organizations trust each other, and share environments."""
    pauses_s: Sequence[float] = PAUSES_S
