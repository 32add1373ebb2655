"""The process of one role: started, or taken over from an earlier `up`, and watched."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import aiohttp

from hotplate.deploy.phases import unix_now
from hotplate.deploy.process import logfile
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.exit_messages import ending
from hotplate.platform.errors import CannotStart
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.ports import obstacle
from hotplate.platform.processes.role_state import RoleState
from hotplate.platform.processes.role_watch import ANSWER_S, START_S, until_silent
from hotplate.platform.processes.roles import Role

STOP_LIMIT_S = 20.0
"""How long a role may take to end after SIGTERM, beyond the drain."""

SILENT_GRACE_S = 5.0
"""The same for a role that does not answer: it will hardly heed SIGTERM either."""

ROLE = "HOTPLATE_ROLE"
"""Names the data directory and the role to its process, and the process to the next `up`."""


class RoleProcess:
    """Keeps one role to one process. `start` comes first."""

    def __init__(self, role: Role, data: DataDir) -> None:
        self.role = role
        self.adopted = False
        """Whether an earlier `up` has started it, when this one began with it."""
        self.last_end = ""
        """How its last process ended, where that was not asked of it."""
        self._data = data
        self._process: Process | None = None
        self._verdict = ""
        """Why we have ended its process."""
        self._unnoted: RoleState | None = None
        """A note that could not be written because the disk was full."""

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def log(self) -> Path:
        return self._data.log(self.role.name)

    @property
    def runs(self) -> bool:
        """Whether a process of the role runs, of ours or of an earlier `up`."""
        return runs(self._data, self.role.name)

    def check_address(self) -> None:
        """Raises `CannotStart` where the role could not listen."""
        if self.role.address is None:
            return
        host, port = self.role.address
        if why := obstacle(host, port):
            raise CannotStart(
                f"port {port} of {host} is not free ({why}): stop the program that uses it, "
                "or choose another --port or --host"
            )

    async def start(self) -> None:
        """Take over the process that does what is wanted now, or start one. Raises `CannotStart`,
        DeployError, OSError."""
        adopted = await self._adopt()
        if adopted is None:
            self.check_address()
        self._process = adopted or self._spawn()
        self.adopted = self.adopted or adopted is not None
        before = RoleState.noted(self._data, self.role.name)
        pid = self._process.pid
        if before is None or before.pid != pid or not before.runs:
            self._unnoted = RoleState.of_new(
                self.role.name, pid, self.role.argv, before, self.last_end
            )
        self.note()

    async def _adopt(self) -> Process | None:
        """The process of the role that does what is wanted now, if there is one; others end."""
        adopted = None
        for process in _running(self._data, self.role.name):
            if adopted is None and process.command() == list(self.role.argv):
                adopted = process
            else:
                await process.terminate(STOP_LIMIT_S)
        return adopted

    def _spawn(self) -> Process:
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environ[ROLE] = _mark(self._data, self.role.name)
        return Process.spawn(self.role.argv, environ, self._data.root, self.log)

    def note(self) -> None:
        """Note which process the role is; to be called again where the disk is full now."""
        if self._unnoted is None:
            return
        with suppress(OSError):
            self._unnoted.note(self._data)
            self._unnoted = None

    async def answers(self, stopping: asyncio.Event) -> bool:
        """Whether it does within `START_S`, as soon as it does; no further than `stopping`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
                while self.alive and not stopping.is_set():
                    if await _status(session, self.role.health_url) == 200:
                        return True
                    await asyncio.sleep(0.1)
        return False

    async def end(self) -> int | None:
        """Wait for the end of its process, and bring that about where it does not answer."""
        silence = asyncio.create_task(self._end_silent(self.process))
        try:
            return await self.process.wait()
        finally:
            silence.cancel()

    async def _end_silent(self, process: Process) -> None:
        url = self.role.health_url
        async with aiohttp.ClientSession() as session:

            async def answers() -> bool:
                return await _status(session, url) > 0

            silent_s = await until_silent(answers)
        self._verdict = f"ended by 'hotplate up', as it had not answered {url} for {silent_s:.0f} s"
        await process.terminate(SILENT_GRACE_S)

    def ended(self, code: int | None) -> str:
        """Keep how its process ended, with exit status `code` (None = unknown): in words."""
        noted = RoleState.noted(self._data, self.role.name)
        how, self._verdict = self._verdict, ""
        self.last_end = how or ending(code, unix_now() - noted.since if noted else 0.0)
        return self.last_end


def last_words(log: Path) -> str:
    """The last line of a role's log that says something."""
    # A traceback of several ends with a rule, and has one before each line.
    lines = logfile.tail(log, 20)
    words = [line.strip("| ") for line in lines if any(map(str.isalnum, line))]
    return words[-1].removeprefix("hotplate: ") if words else "it logged nothing"


def runs(data: DataDir, name: str) -> bool:
    """Whether a process of the role runs on this data directory."""
    found = _running(data, name)
    for process in found:
        process.leave()
    return bool(found)


async def end_role(data: DataDir, name: str) -> None:
    """End the processes of a role that is no longer wanted, and forget it."""
    for process in _running(data, name):
        await process.terminate(STOP_LIMIT_S)
    data.forget(name)


def _running(data: DataDir, name: str) -> list[Process]:
    """The role's processes that an `up` on this data directory has started.

    They are known by their environment: an `up` that was killed may not have noted the last one.
    """
    return Process.find(ROLE, [_mark(data, name)])


def _mark(data: DataDir, name: str) -> str:
    return f"{data.root}/{name}"


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    """The status of the response; 0 if there is none."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(ANSWER_S)) as answer:
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return 0
