"""What a build is made of, how it ends, and what is asked of whoever has it done on a cluster.

Whoever asks knows what is built; here it is a program in a pod, which is told what to do by a file
and says in another one why it has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from hotplate.cache.volumes import ticket
from hotplate.deploy.cluster import names

NAME_DIGITS = 16
"""How many digits of what is built stand in the names of its objects."""
ENV_FOLDER = f"{ticket.FOLDER}/env"
"""Where its program leaves what the node's agent takes over."""
INSTRUCTIONS_FILE = "/job/build.json"
ENDED_FILE = "/dev/termination-log"
"""What its program writes there, kubelet keeps with the pod: a JSON object with `sentence`, `retry`
and `no_room`."""
ACCOUNT = "default"
"""The ServiceAccount of builds: it has no rights, and its token is not mounted."""


def namespace_of(release: str) -> str:
    """Where builds are; `release` is the namespace of the installation."""
    return f"{release}-builds"


@dataclass(frozen=True)
class JobBuild:
    """One build."""

    digest: str
    """Of what is built: there is one build of it at a time."""
    organization: str
    image: str
    command: Sequence[str]
    ticket: str
    """What its volume is given out for, signed."""
    instructions: Mapping[str, Any] = field(repr=False)
    """The content of INSTRUCTIONS_FILE, secrets among it."""
    container_env: Mapping[str, str] = field(default_factory=dict)
    """Variables that its container is started with; anybody may read them."""

    @property
    def name(self) -> str:
        """Of its Job and its Secret."""
        return f"env-{self.digest[:NAME_DIGITS]}"

    @property
    def labels(self) -> dict[str, str]:
        return {**names.organization_labels(self.organization), names.ROLE: "build"}


@dataclass(frozen=True)
class BuildSettings:
    """What every build may use, and where it may run."""

    release: str = "hotplate"
    """The namespace of the installation."""
    cpus: float = 2.0
    memory_bytes: int = 4 << 30
    disk_bytes: int = 40 << 30
    """Of its packages, downloads and log together; half of it of what it makes."""
    timeout_s: float = 1800.0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    pull_policy: str = "IfNotPresent"
    pull_secrets: Sequence[str] = ()
    """Names of Secrets of the builds' namespace with which images are pulled."""
    kills: int = 5
    """A build that was killed so often in a row is not begun anew."""
    first_pause_s: float = 1.0
    """Before it is begun anew; each further one is twice as long."""
    longest_pause_s: float = 60.0
    look_s: float = 5.0
    """How it stands is looked at least this often."""
    last_words_s: float = 10.0
    """How long the end of a build's log is waited for when it has ended, and the end of its pod
    when it was killed."""


class BuildEnd(StrEnum):
    """How a build has ended."""

    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"
    """By nothing of its own: it may be begun anew."""


@dataclass(frozen=True)
class BuildOutcome:
    """How a build has ended, and why."""

    end: BuildEnd
    sentence: str = ""
    retry: bool = False
    """Whether another try may help."""
    no_room: bool = False
    """Whether it only has to wait for room on a disk."""
    log: Sequence[str] = ()
    """The last lines that it has printed."""
    took_s: float = 0.0
    """How long it was followed."""


class BuildJobs(Protocol):
    """Has builds done."""

    def log(self, digest: str) -> Path:
        """The file with all that the build of that digest has printed, from its first line; it
        need not be there."""

    async def build(self, wanted: JobBuild, tell: Callable[[str], None]) -> BuildOutcome:
        """Has it done, or follows whoever does it, until it has ended. `tell` is told what it waits
        for, and "" while it runs."""
