"""`hotplate up`: the whole platform on this machine, each role a process of its own.

The roles lead sessions of their own and outlive this supervisor: when it is killed, requests go
on being answered, and the next `up` on the same data directory takes over what still runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.markup import escape

from hotplate.deploy import logfile
from hotplate.deploy.enclosure import REPLICA_DIR
from hotplate.deploy.endings import ending
from hotplate.deploy.machine import arena_bytes
from hotplate.deploy.phases import unix_now
from hotplate.deploy.processes import Process
from hotplate.deploy.records import Records
from hotplate.platform.data_dir import DataDir
from hotplate.platform.errors import CannotStart
from hotplate.platform.ports import free_port, is_free, obstacle, reachable
from hotplate.platform.role_state import SUPERVISOR, RoleState, end_of
from hotplate.platform.settings import PlatformSettings

START_LIMIT_S = 60.0
"""How long a role may take until it answers its health check."""

RESTART_PAUSE_S = 1.0
STOP_LIMIT_S = 20.0
"""How long a role may take to end after SIGTERM, beyond the drain."""


@dataclass(frozen=True)
class Role:
    name: str
    argv: tuple[str, ...]
    health_url: str


class Supervisor:
    """Starts the roles, starts them again when they die, and ends them together."""

    def __init__(self, settings: PlatformSettings, data: DataDir, console: Console) -> None:
        self._settings = settings
        self._data = data
        self._console = console
        self._processes: dict[str, Process] = {}
        self._last_ends: dict[str, str] = {}
        """How the process of each role ended that was not asked to."""
        self._unnoted: dict[str, RoleState] = {}
        """What could not be noted because the disk was full."""
        self._stopping = asyncio.Event()

    async def run(self, admin_token: str) -> None:
        """Returns after SIGINT or SIGTERM, when everything that was started has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        if self._adoptable("control-plane") is None:
            self._check_address()  # before anything is started that would have to be stopped
        roles = self._roles()
        self._note_start([role.name for role in roles])
        watchers = []
        try:
            for role in roles:
                await self._start(role)
            for role in roles:
                await self._healthy(role)
            self._greet(admin_token)
            watchers = [asyncio.create_task(self._keep(role)) for role in roles]
            watchers += [asyncio.create_task(self._follow(role)) for role in roles]
            await self._stopping.wait()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await self._stop()

    def _note_start(self, roles: Sequence[str]) -> None:
        goes_on = [name for name in roles if self._adoptable(name) is not None]
        taken_over = f"; it takes over what still runs: {', '.join(goes_on)}" if goes_on else ""
        self._data.events.add("UpStarted", f"hotplate up was started{taken_over}")
        RoleState.of_new(SUPERVISOR, os.getpid(), sys.argv).note(self._data)

    def _roles(self) -> list[Role]:
        ports, settings, data = self._ports(), self._settings, self._data
        api = f"http://{reachable(settings.host)}:{settings.port}"
        agent = f"http://127.0.0.1:{ports['agent']}"
        token = str(data.root / "cluster-token")
        return [
            _role(
                "agent",
                agent,
                data=data.folder("agent"),
                port=ports["agent"],
                origin=settings.blobs_url or data.blobs_url,
                memory=arena_bytes(settings.arena_bytes),
                disk_reserve=settings.disk_reserve_bytes,
                token_file=token,
            ),
            _role(
                "gateway",
                f"http://127.0.0.1:{ports['gateway']}",
                control_plane=api,
                admin=f"127.0.0.1:{ports['gateway']}",
                state=data.folder("gateway"),
                token_file=token,
            ),
            _role(
                "control-plane",
                api,
                data=data.root,
                host=settings.host,
                port=settings.port,
                agent=agent,
            ),
        ]

    def _ports(self) -> dict[str, int]:
        """Ports of the roles that only this machine talks to: the last ones, if still free."""
        noted = self._data.noted("ports") or {}
        ports = {}
        for name in ("agent", "gateway"):
            running = self._adoptable(name) is not None
            usable = noted.get(name) and (running or is_free("127.0.0.1", noted[name]))
            ports[name] = noted[name] if usable else free_port("127.0.0.1")
        self._data.note("ports", ports)
        return ports

    def _adoptable(self, name: str) -> RoleState | None:
        noted = RoleState.noted(self._data, name)
        return noted if noted is not None and noted.runs else None

    def _check_address(self) -> None:
        """Raises `CannotStart` where the API could not listen."""
        host, port = self._settings.host, self._settings.port
        if why := obstacle(host, port):
            raise CannotStart(
                f"port {port} of {host} cannot be listened on ({why}): stop what uses it, "
                "or choose another --port or --host"
            )

    async def _start(self, role: Role) -> None:
        found = self._adoptable(role.name)
        if found is not None:
            process = Process.adopt(found.pid, found.start_time)
            if process is not None and found.argv == role.argv:
                self._processes[role.name] = process
                self._console.print(f"[dim]{role.name}: goes on from before (pid {process.pid})[/]")
                return
            if process is not None:
                await process.terminate(STOP_LIMIT_S)
        if role.name == "control-plane":
            self._check_address()
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        process = Process.spawn(role.argv, environ, self._data.root, self._data.log(role.name))
        before, last_end = (
            RoleState.noted(self._data, role.name),
            self._last_ends.get(role.name, ""),
        )
        self._processes[role.name] = process
        state = RoleState.of_new(role.name, process.pid, role.argv, before, last_end)
        self._unnoted[role.name] = state
        self._note(role)

    def _note(self, role: Role) -> None:
        """Note which process the role is; again later where the disk is full now."""
        state = self._unnoted.get(role.name)
        if state is None:
            return
        with suppress(OSError):
            state.note(self._data)
            del self._unnoted[role.name]

    async def _healthy(self, role: Role) -> None:
        """Wait until the role answers. Raises `CannotStart` with the last line of its log."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_LIMIT_S), aiohttp.ClientSession() as session:
                while self._processes[role.name].alive and not self._stopping.is_set():
                    with suppress(aiohttp.ClientError, TimeoutError):
                        async with session.get(
                            role.health_url, timeout=aiohttp.ClientTimeout(5)
                        ) as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(0.1)
        if not self._stopping.is_set():
            raise CannotStart(
                f"the {role.name} does not start: {last_words(self._data.log(role.name))} "
                f"(log: {self._data.log(role.name)})"
            )

    async def _keep(self, role: Role) -> None:
        """Start a role again whenever it dies."""
        while True:
            code = await self._processes[role.name].wait()
            if self._stopping.is_set():
                return
            ended_at, noted = unix_now(), RoleState.noted(self._data, role.name)
            how = ending(code, ended_at - (noted.since if noted else ended_at))
            self._last_ends[role.name] = how
            self._happened("RoleEnded", end_of(role.name, how))
            await asyncio.sleep(RESTART_PAUSE_S)
            try:
                await self._start(role)
                await self._healthy(role)
            except (CannotStart, OSError) as error:
                self._happened("RoleCannotStart", f"{role.name}: {error}; it is tried again")
            else:
                down_s = unix_now() - ended_at
                self._happened("RoleStarted", f"the {role.name} works again after {down_s:.1f} s")

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
                self._say(f"[dim]{role.name:13}[/] {escape(line)}")

    def _greet(self, admin_token: str) -> None:
        url = f"http://{reachable(self._settings.host)}:{self._settings.port}"
        print(f"\nHotplate is ready at {url}\n")
        print(f"  bentoml cloud login --endpoint {url} --api-token {admin_token}\n")
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
        await self._end_orphans()
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

    async def _end_orphans(self) -> None:
        """The replicas of a control plane that was just dead and could not be asked."""
        records = Records(self._data.visible_folder("engine"))
        folders = [str(records.work(replica)) for replica in records.ids()]
        orphans = Process.find(REPLICA_DIR, folders)
        await asyncio.gather(*(orphan.terminate(STOP_LIMIT_S) for orphan in orphans))


def _role(name: str, url: str, **flags: object) -> Role:
    argv = [sys.executable, "-m", "hotplate.platform.cli", name]
    for flag, value in flags.items():
        argv += [f"--{flag.replace('_', '-')}", str(value)]
    return Role(name, tuple(argv), f"{url}/healthz")


def last_words(log: Path) -> str:
    """The last line of a role's log that says something."""
    said = [line for line in logfile.tail(log, 20) if line.strip()]
    return said[-1].removeprefix("hotplate: ") if said else "it logged nothing"
