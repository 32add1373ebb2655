"""Processes that outlive the command that started them, known by pid and start time.

A daemon that runs with what it is to run with is left alone: so `up` costs nothing when it is asked
again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hotplate.deploy.process import procfs
from tests.cluster.errors import TestClusterError
from tests.cluster.layout import Layout

_END_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """One that was started."""

    name: str
    pid: int
    start_time: str
    digest: str

    @property
    def running(self) -> bool:
        """Whether it is still that process."""
        return procfs.is_running(self.pid, self.start_time)


@dataclass(frozen=True, slots=True)
class Daemons:
    """Those of one cluster."""

    layout: Layout

    def find(self, name: str) -> Daemon | None:
        """The daemon of this name if it runs."""
        try:
            record = json.loads(self._record(name).read_text())
        except FileNotFoundError:
            return None
        daemon = Daemon(**record)
        return daemon if daemon.running else None

    def names(self) -> list[str]:
        """All that have ever been started, in the order of their names."""
        return sorted(record.stem for record in self.layout.daemons.glob("*.json"))

    def ensure(
        self,
        name: str,
        argv: Sequence[str],
        *,
        inside: int | None = None,
        files: Sequence[Path] = (),
    ) -> bool:
        """Starts the daemon unless it runs with these arguments and files; whether it was started.

        `inside`: the process whose namespaces of network and mounts it lives in.
        """
        digest = _digest(argv, inside, files)
        there = self.find(name)
        if there is not None and there.digest == digest:
            return False
        if there is not None:
            self.end(name)
        entering = ["nsenter", f"--target={inside}", "--net", "--mount", "--"] if inside else []
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        with (self.layout.logs / f"{name}.log").open("ab") as log:
            streams = (
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
            )
            command = [*entering, *argv]
            pid = os.posix_spawnp(
                command[0], command, os.environ, file_actions=streams, setsid=True
            )
        daemon = Daemon(name, pid, procfs.start_time_of(pid), digest)
        self.layout.daemons.mkdir(parents=True, exist_ok=True)
        self._record(name).write_text(json.dumps(asdict(daemon)))
        return True

    def tell(self, name: str, number: signal.Signals) -> None:
        """Sends a signal; TestClusterError if there is nothing to send it to."""
        daemon = self.find(name)
        if daemon is None:
            raise TestClusterError(f"{name} does not run; start it before")
        os.kill(daemon.pid, number)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the daemon, by SIGKILL if it takes too long, and waits until it is gone."""
        daemon = self.find(name)
        if daemon is not None:
            with contextlib.suppress(ProcessLookupError):
                _end(daemon.pid, number)
        self._record(name).unlink(missing_ok=True)

    def last_lines(self, name: str, lines: int = 5) -> str:
        """What the daemon wrote last."""
        try:
            written = (self.layout.logs / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(written.splitlines()[-lines:])

    def _record(self, name: str) -> Path:
        return self.layout.daemons / f"{name}.json"


def _end(pid: int, number: signal.Signals) -> None:
    """Returns when no thread is left: the first may end before others, which keep the ports.

    Raises ProcessLookupError if there is none at all.
    """
    ended = select.poll()
    process = os.pidfd_open(pid)
    try:
        ended.register(process)
        for each in (number, signal.SIGCONT):
            signal.pidfd_send_signal(process, each)
        if not ended.poll(1000 * _END_WITHIN_S):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            ended.poll()
    finally:
        os.close(process)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _digest(argv: Sequence[str], inside: int | None, files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(json.dumps([list(argv), inside]).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
