"""What a control plane knows of one environment of pods, and of who waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.pods.environments import PodEnvironment

KNOWN_S = 600.0
"""An environment that nobody has asked for so long is looked for anew: its files may have gone."""


class Asker(NamedTuple):
    """A revision that needs an environment."""

    organization: str
    deployment: str
    revision: int


@dataclass
class KnownEnvironment:
    """What is known of one environment now."""

    digest: str
    owner: str
    bentos: set[str] = field(default_factory=set)
    """Those that use it, as far as they have asked."""
    noted: set[str] = field(default_factory=set)
    """Those of them that its note names."""
    askers: set[Asker] = field(default_factory=set)
    """Those that have waited for its last build."""
    told: set[Asker] = field(default_factory=set)
    """Those that have heard that it cannot be built: it is not tried for them again."""
    ready: PodEnvironment | None = None
    failure: EnvironmentFailed | None = None
    task: asyncio.Task[None] | None = None
    """What looks for it, or has it built."""
    reason: str = ""
    log: str = ""
    """The file with the output of its last build."""
    failures: int = 0
    again_at: float = 0.0
    asked_at: float = 0.0
    """By the loop's clock, as `again_at`."""
    changed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def failure_of(self, asker: Asker, now: float) -> EnvironmentFailed | None:
        """Why it is not tried now, for that revision; None = it is to be tried."""
        failure = self.failure
        if failure is None or (not failure.retry and asker not in self.told):
            return None
        if failure.retry and now >= self.again_at:
            return None
        retry, no_room = failure.retry, failure.no_room
        return EnvironmentFailed(str(failure), retry=retry, no_room=no_room, log=failure.log)

    def is_idle(self, now: float) -> bool:
        """Whether nobody has asked for it for so long that its files may have gone."""
        return self.task is None and now - self.asked_at > KNOWN_S
