"""How a workload becomes a process of this machine: what the engine asks of a framework's runtime.

`serving.replica` has BentoML's. The runtime says *what* to start (a `Command`, and the `Warm`
process that may become it); the engine starts it, gives it its socket and its GPUs, and ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hotplate.deploy.phases import Phase, Recorder
from hotplate.deploy.workload import Workload


@dataclass(frozen=True)
class Warm:
    """How to start a standby: a process that becomes any replica with an equal one of these.

    The engine adds to `env` what it adds for a replica, but for a listening socket
    `HOTPLATE_STANDBY_FD`, over which it talks to the process (`local/standby/process.py`).
    """

    environment: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    job: Mapping[str, Any]
    """What the process reads from its standard input; the engine adds its `folder`."""
    variant: str = ""
    """What else sets its replicas apart from others of the environment."""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    """As of a command."""
    takes_along: Mapping[str, str] = field(default_factory=dict)
    """What of its own folder it takes into that of the replica: files below which folder there."""
    organization: str = ""
    """Whose replicas it becomes; "" = anybody's, as all of them trust each other."""
    template: tuple[str, ...] = ()
    """The program, with its arguments, that forks such processes; empty = there is none. It has
    `env`, `job` and files as they do, but for their socket `HOTPLATE_TEMPLATE_FD`."""


@dataclass(frozen=True)
class Command:
    """How to start a replica's process.

    The engine adds to `env`: `HOTPLATE_LISTEN_FD` (a listening socket to serve HTTP on),
    `HOTPLATE_REPLICA_DIR` (the replica's own directory), `CUDA_VISIBLE_DEVICES` (its GPUs, "" for
    none) and `CUDA_DEVICE_ORDER`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    job: Mapping[str, Any]
    """What the process reads from its standard input: one JSON document, then the end."""
    ready_path: str = "/readyz"
    """Where `GET` answers 200 when the replica may have requests."""
    reads: tuple[str, ...] = ()
    """Files and folders that it needs, of those that an engine may hide."""
    writes: tuple[str, ...] = ()
    """The same, for writing too. Its own directory is always among them."""
    layers: tuple[str, ...] = ()
    """Folders that it reads, and where what it writes is seen by itself alone: the engine has that
    lie in its own directory. Those of its standby are the same."""
    warm: Warm | None = None
    """The standby that may become this replica, or what a template forks it from; None if neither
    can."""
    processes: int = 1
    """How many serve. Of several each is forked, which no standby is made for: it may have threads,
    or a context on a GPU."""


class Runtime(Protocol):
    """What BentoML (or another framework) needs to become a process on this node."""

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        """Make environment, files and weights available (side by side) and say what to start.

        `directory` is the replica's own, empty. Weights may still be arriving when this returns.
        Raises `PrepareFailed` (with `retry` False if trying again cannot help).
        """

    async def keep(self, directory: str, *, ended: bool) -> None:
        """Keep what the process there has made and those after it can use.

        Called while it serves, and when it has `ended`, before the directory goes.
        """

    async def phases(self, directory: str) -> Sequence[Phase]:
        """The phases that the process itself has noted in its directory so far."""

    async def self_report(self, directory: str) -> Mapping[str, Any] | None:
        """What else it has said of itself there; None if nothing."""
