"""`hotplate up`: the whole platform on this machine, each role a process of its own.

The roles lead sessions of their own and outlive this supervisor: when it is killed, requests go
on being answered, and the next `up` on the same data directory takes over what still runs.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.markup import escape

from hotplate.deploy.errors import DeployError
from hotplate.deploy.phases import unix_now
from hotplate.deploy.process import logfile
from hotplate.deploy.process.backoff import Backoff, BackoffSettings
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.exit_messages import ending
from hotplate.deploy.process.printable import printable
from hotplate.platform.errors import CannotStart
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.leftovers import end_builds, end_replicas
from hotplate.platform.processes.ports import free_port, is_free, obstacle, reachable
from hotplate.platform.processes.role_state import SUPERVISOR, RoleState, end_of
from hotplate.platform.processes.role_watch import ANSWER_S, START_S, until_silent
from hotplate.platform.processes.roles import Role, roles_of
from hotplate.platform.settings import PlatformSettings

RESTARTS = BackoffSettings(first_s=1.0, max_s=30.0, reset_after_s=10.0)
"""Pauses of a role that dies. Without it requests wait or fail, so the longest one is short."""
STOP_LIMIT_S = 20.0
"""How long a role may take to end after SIGTERM, beyond the drain."""

SILENT_GRACE_S = 5.0
"""The same for one that does not answer: it will hardly heed that either."""

ROLE = "HOTPLATE_ROLE"
"""Names the data directory and the role to its process, and the process to the next `up`."""


class Supervisor:
    """Starts the roles, starts them again when they die, and ends them together."""

    def __init__(self, settings: PlatformSettings, data: DataDir, console: Console) -> None:
        self._settings = settings
        self._data = data
        self._console = console
        self._processes: dict[str, Process] = {}
        self._last_ends: dict[str, str] = {}
        """How the process of each role ended that was not asked to."""
        self._adopted: set[str] = set()
        """Roles that an earlier `up` has started, when this one began with them."""
        self._verdicts: dict[str, str] = {}
        """Why we have ended the process of a role."""
        self._unnoted: dict[str, RoleState] = {}
        """What could not be noted because the disk was full."""
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Returns after SIGINT or SIGTERM, when everything that was started has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        if not self._runs("control-plane"):
            self._check_address()  # before anything is started that would have to be stopped
        roles = roles_of(self._settings, self._data, self._ports())
        self._note_start([role.name for role in roles])
        watchers = []
        try:
            for role in roles:
                await self._start(role)
            for role in roles:
                await self._healthy(role)
            self._greet()
            watchers = [asyncio.create_task(self._keep(role)) for role in roles]
            watchers += [asyncio.create_task(self._follow(role)) for role in roles]
            await self._stopping.wait()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await self._stop()

    def _note_start(self, roles: Sequence[str]) -> None:
        goes_on = [name for name in roles if self._runs(name)]
        taken_over = f"; it takes over what still runs: {', '.join(goes_on)}" if goes_on else ""
        self._data.events.add("UpStarted", f"hotplate up was started{taken_over}")
        RoleState.of_new(SUPERVISOR, os.getpid(), sys.argv).note(self._data)

    def _ports(self) -> dict[str, int]:
        """Ports of the roles that only this machine talks to: the last ones, if still free."""
        noted = self._data.noted("ports") or {}
        ports = {}
        for name in ("agent", "gateway"):
            usable = noted.get(name) and (self._runs(name) or is_free("127.0.0.1", noted[name]))
            ports[name] = noted[name] if usable else free_port("127.0.0.1")
        self._data.note("ports", ports)
        return ports

    def _running(self, name: str) -> list[Process]:
        """The role's processes that an earlier `up` on this data directory has started.

        They are known by their environment: one that was killed may not have noted the last.
        """
        return Process.find(ROLE, [self._mark(name)])

    def _runs(self, name: str) -> bool:
        found = self._running(name)
        for process in found:
            process.leave()
        return bool(found)

    def _mark(self, name: str) -> str:
        return f"{self._data.root}/{name}"

    def _check_address(self) -> None:
        """Raises `CannotStart` where the API could not listen."""
        host, port = self._settings.host, self._settings.port
        if why := obstacle(host, port):
            raise CannotStart(
                f"port {port} of {host} cannot be listened on ({why}): stop what uses it, "
                "or choose another --port or --host"
            )

    async def _start(self, role: Role) -> None:
        adopted = await self._adopt(role)
        if adopted is None and role.name == "control-plane":
            self._check_address()
        process = adopted or self._spawn(role)
        if adopted is not None:
            self._adopted.add(role.name)
        self._processes[role.name] = process
        before = RoleState.noted(self._data, role.name)
        if before is None or before.pid != process.pid or not before.runs:
            last_end = self._last_ends.get(role.name, "")
            state = RoleState.of_new(role.name, process.pid, role.argv, before, last_end)
            self._unnoted[role.name] = state
        self._note(role)

    async def _adopt(self, role: Role) -> Process | None:
        """The process of the role that does what is wanted now, if there is one; others end."""
        adopted = None
        for process in self._running(role.name):
            if adopted is None and process.command() == list(role.argv):
                adopted = process
                self._console.print(f"[dim]{role.name}: goes on from before (pid {process.pid})[/]")
            else:
                await process.terminate(STOP_LIMIT_S)
        return adopted

    def _spawn(self, role: Role) -> Process:
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environ[ROLE] = self._mark(role.name)
        return Process.spawn(role.argv, environ, self._data.root, self._data.log(role.name))

    def _note(self, role: Role) -> None:
        """Note which process the role is; again later where the disk is full now."""
        state = self._unnoted.get(role.name)
        if state is None:
            return
        with suppress(OSError):
            state.note(self._data)
            del self._unnoted[role.name]

    async def _healthy(self, role: Role) -> None:
        """Wait until the role answers; one that an earlier `up` has left and that does not is
        replaced. Raises `CannotStart` with the last line of its log."""
        answers = await self._answers(role)
        if not answers and role.name in self._adopted and not self._stopping.is_set():
            silence = f"it has not answered {role.health_url} for {START_S:.0f} s"
            self._last_ends[role.name] = f"ended by 'hotplate up', as {silence}"
            self._happened("RoleEnded", end_of(role.name, self._last_ends[role.name]))
            await self._processes[role.name].terminate(SILENT_GRACE_S)
            await self._start(role)
            answers = await self._answers(role)
        if not answers and not self._stopping.is_set():
            raise CannotStart(
                f"the {role.name} does not start: {last_words(self._data.log(role.name))} "
                f"(log: {self._data.log(role.name)})"
            )

    async def _answers(self, role: Role) -> bool:
        """Whether it does, as soon as it does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
                while self._processes[role.name].alive and not self._stopping.is_set():
                    if await _status(session, role.health_url) == 200:
                        return True
                    await asyncio.sleep(0.1)
        return False

    async def _keep(self, role: Role) -> None:
        """Start a role again whenever it dies; one that dies again and again waits longer."""
        now = asyncio.get_running_loop().time
        backoff = Backoff(RESTARTS)
        while True:
            began = now()
            code = await self._end_of(role)
            if self._stopping.is_set():
                return
            if self._runs(role.name):  # another process has taken over from it
                await self._start(role)
                pid = self._processes[role.name].pid
                self._data.events.add("RoleReplaced", f"the {role.name} is process {pid} now")
                continue
            backoff, pause_s = backoff.failed(now() - began)
            ended_at, noted = unix_now(), RoleState.noted(self._data, role.name)
            how = self._verdicts.pop(role.name, "")
            how = how or ending(code, ended_at - (noted.since if noted else ended_at))
            self._last_ends[role.name] = how
            self._happened("RoleEnded", end_of(role.name, how))
            await asyncio.sleep(pause_s)
            try:
                await self._start(role)
                await self._healthy(role)
            except (CannotStart, DeployError, OSError) as error:
                self._happened("RoleCannotStart", f"{role.name}: {error}; it is tried again")
            else:
                down_s = unix_now() - ended_at
                self._happened("RoleStarted", f"the {role.name} works again after {down_s:.1f} s")

    async def _end_of(self, role: Role) -> int | None:
        """Wait for the end of its process, and bring that about where it does not answer."""
        process = self._processes[role.name]
        silence = asyncio.create_task(self._end_silent(role, process))
        try:
            return await process.wait()
        finally:
            silence.cancel()

    async def _end_silent(self, role: Role, process: Process) -> None:
        async with aiohttp.ClientSession() as session:

            async def answers() -> bool:
                return await _status(session, role.health_url) > 0

            silent_s = await until_silent(answers)
        how = (
            f"ended by 'hotplate up', as it had not answered {role.health_url} for {silent_s:.0f} s"
        )
        self._verdicts[role.name] = how
        await process.terminate(SILENT_GRACE_S)

    def _happened(self, kind: str, message: str) -> None:
        """Say it here, and keep it for who asks later."""
        self._data.events.add(kind, message)
        self._say(f"[red]{escape(message)}[/]")

    def _say(self, text: str) -> None:
        """Print a line, unless our output goes to a disk that is full."""
        with suppress(OSError):
            self._console.print(text, soft_wrap=True)

    async def _follow(self, role: Role) -> None:
        """Print what a role logs from now on."""
        path = self._data.log(role.name)
        position = path.stat().st_size if path.exists() else 0
        while True:
            await asyncio.sleep(0.5)
            self._note(role)
            size = path.stat().st_size if path.exists() else 0
            if size <= position:
                position = min(position, size)
                continue
            with path.open("rb") as file:
                file.seek(position)
                fresh = file.read(1 << 20)
            whole = fresh[: fresh.rfind(b"\n") + 1]
            position += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._say(f"[dim]{role.name:13}[/] {escape(printable(line))}")

    def _greet(self) -> None:
        """The token itself is not printed: not into journals, nor into a history of commands."""
        url = f"http://{reachable(self._settings.host)}:{self._settings.port}"
        token = f'"$(cat {shlex.quote(str(self._data.admin_token_file))})"'
        print(f"\nHotplate is ready at {url}\n")
        print(f"  BENTO_CLOUD_API_KEY={token} bentoml cloud login --endpoint {url}\n")
        print("Then, in the folder of a service:  bentoml deploy .")
        print(f"Data: {self._data.root}.  Ctrl-C stops everything.\n", flush=True)

    async def _stop(self) -> None:
        """Drain and stop the replicas, then the roles."""
        self._stopping.set()
        if self._processes.get("control-plane") and self._processes["control-plane"].alive:
            self._console.print("stopping: running requests end first, then the replicas")
            await self._stop_replicas()
        ends = [process.terminate(STOP_LIMIT_S) for process in self._processes.values()]
        await asyncio.gather(*ends)
        await asyncio.gather(end_replicas(self._data, STOP_LIMIT_S), end_builds(self._data))
        self._data.events.add("UpStopped", "hotplate up was stopped, and every replica with it")
        self._console.print("stopped")

    async def _stop_replicas(self) -> None:
        url = f"http://{reachable(self._settings.host)}:{self._settings.port}/internal/shutdown"
        headers = {"Authorization": f"Bearer {self._data.secret('cluster-token')}"}
        limit = aiohttp.ClientTimeout(self._settings.drain_s + 2 * STOP_LIMIT_S)
        with suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.post(url, headers=headers) as answer,
            ):
                await answer.read()


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    """What is answered there; 0 if nothing."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(ANSWER_S)) as answer:
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return 0


def last_words(log: Path) -> str:
    """The last line of a role's log that says something."""
    # A traceback of several ends with a rule, and has one before each line.
    said = [line.strip("| ") for line in logfile.tail(log, 20) if any(map(str.isalnum, line))]
    return said[-1].removeprefix("hotplate: ") if said else "it logged nothing"
