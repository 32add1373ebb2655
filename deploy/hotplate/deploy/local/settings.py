"""Settings of the local engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotplate.deploy.local.memory_watch import MemoryWatchSettings
from hotplate.deploy.local.probing import ProbeSettings
from hotplate.deploy.process.backoff import BackoffSettings
from hotplate.deploy.standbys import StandbySettings


@dataclass(frozen=True)
class LocalSettings:
    """How the local engine treats its replicas."""

    probe: ProbeSettings = field(default_factory=ProbeSettings)
    """How their readiness is watched."""
    backoff: BackoffSettings = field(default_factory=BackoffSettings)
    """How long a replica that ended by itself waits before it starts again."""
    standby: StandbySettings = field(default_factory=StandbySettings)
    """How many warm processes are kept."""
    memory: MemoryWatchSettings = field(default_factory=MemoryWatchSettings)
    """How often it is read what they take of the memory."""
    log_tail_lines: int = 20
    """Lines of the log that are reported with a replica that ended by itself."""
