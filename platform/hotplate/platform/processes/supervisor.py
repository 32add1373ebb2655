"""`hotplate up`: the whole platform on this machine, each role a process of its own.

The roles lead sessions of their own and outlive this supervisor: when it is killed, requests go
on being answered, and the next `up` on the same data directory takes over what still runs.

Of the folder: `roles` says what is started and how, `role_process` keeps one role to one process,
`role_watch` says when one that is silent counts as dead, and `role_state` is what is noted of each
in `run/` for `hotplate status`. `data_dir` knows the paths, `event_log` keeps what happened to the
platform itself, and `leftovers` ends what a control plane that was killed has left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from http import HTTPStatus

import aiohttp

from hotplate.deploy.errors import DeployError
from hotplate.deploy.phases import unix_now
from hotplate.deploy.process.backoff import Backoff, BackoffSettings
from hotplate.platform.errors import CannotStart
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.leftovers import end_builds, end_replicas
from hotplate.platform.processes.ports import free_port, is_free, reachable
from hotplate.platform.processes.role_process import (
    SILENT_GRACE_S,
    STOP_LIMIT_S,
    RoleProcess,
    end_role,
    last_words,
    runs,
)
from hotplate.platform.processes.role_state import SUPERVISOR, RoleState, end_of
from hotplate.platform.processes.role_watch import START_S
from hotplate.platform.processes.roles import CONTROL_PLANES, SECOND_CONTROL_PLANE, roles_of
from hotplate.platform.processes.sign_in_link import may_show_secrets, sign_in_link
from hotplate.platform.processes.terminal import Terminal
from hotplate.platform.settings import PlatformSettings

RESTARTS = BackoffSettings(first_s=1.0, max_s=30.0, reset_after_s=10.0, without_pause=1)
"""Pauses of a role that dies. Without it requests wait or fail, so one that has worked starts again
at once, and the longest pause is short."""


class Supervisor:
    """Starts the roles, starts them again when they die, and ends them together."""

    def __init__(self, settings: PlatformSettings, data: DataDir, terminal: Terminal) -> None:
        self._settings = settings
        self._data = data
        self._terminal = terminal
        self._stopping = asyncio.Event()
        self._url = f"http://{reachable(settings.host)}:{settings.port}"

    async def run(self) -> None:
        """Returns after SIGINT or SIGTERM, when everything that was started has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        roles = [
            RoleProcess(role, self._data)
            for role in roles_of(self._settings, self._data, self._ports())
        ]
        for role in roles:
            if not role.runs:
                role.check_address()  # before anything is started that would have to be stopped
        if not any(role.role.name == SECOND_CONTROL_PLANE for role in roles):
            await end_role(self._data, SECOND_CONTROL_PLANE)  # of an earlier `up` that had one
        self._note_start(roles)
        followers = [
            asyncio.create_task(self._terminal.follow(role.role.name, role.log, role.note))
            for role in roles
        ]
        keepers: list[asyncio.Task[None]] = []
        try:
            for role in roles:
                await self._start(role)
            for role in roles:
                await self._healthy(role)
            dashboard = await self._dashboard()
            self._terminal.greet(self._url, dashboard, self._data.admin_token_file, self._data.root)
            keepers = [asyncio.create_task(self._keep(role)) for role in roles]
            await self._stopping.wait()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await self._stop(roles)
            for follower in followers:
                follower.cancel()

    async def _dashboard(self) -> str:
        """The dashboard's address, with a link that signs in once where nobody else reads it."""
        link = ""
        if may_show_secrets(sys.stdout):
            link = await sign_in_link(self._url, self._data.secret("admin-token"))
        return link or f"{self._url}/"

    def _ports(self) -> dict[str, int]:
        """Ports of the roles that no setting says: the last ones, if still free."""
        noted = self._data.noted("ports") or {}
        ports: dict[str, int] = {}
        hosts = {"agent": "127.0.0.1", "gateway": "127.0.0.1"}
        if self._settings.control_planes > 1:
            hosts[SECOND_CONTROL_PLANE] = self._settings.host
        for name, host in hosts.items():
            last = noted.get(name)
            usable = last and (runs(self._data, name) or is_free(host, last))
            ports[name] = noted[name] if usable else free_port(host)
        self._data.note("ports", ports)
        return ports

    def _note_start(self, roles: list[RoleProcess]) -> None:
        goes_on = [role.role.name for role in roles if role.runs]
        taken_over = f"; it takes over what still runs: {', '.join(goes_on)}" if goes_on else ""
        self._data.events.add("UpStarted", f"hotplate up was started{taken_over}")
        RoleState.of_new(SUPERVISOR, os.getpid(), sys.argv).note(self._data)

    async def _start(self, role: RoleProcess) -> None:
        was_adopted = role.adopted
        await role.start()
        if role.adopted and not was_adopted:
            pid = role.process.pid
            self._terminal.say(f"{role.role.name}: still runs from before (pid {pid})", "dim")

    async def _healthy(self, role: RoleProcess) -> None:
        """Wait until the role answers; one that an earlier `up` has left and that does not is
        replaced. Raises `CannotStart` with the last line of its log."""
        answers = await role.answers(self._stopping)
        if not answers and role.adopted and not self._stopping.is_set():
            silence = f"it has not answered {role.role.health_url} for {START_S:.0f} s"
            role.last_end = f"ended by 'hotplate up', as {silence}"
            self._happened("RoleEnded", end_of(role.role.name, role.last_end))
            await role.process.terminate(SILENT_GRACE_S)
            await role.start()
            answers = await role.answers(self._stopping)
        if not answers and not self._stopping.is_set():
            raise CannotStart(
                f"the {role.role.name} does not start: {last_words(role.log)} (log: {role.log})"
            )

    async def _keep(self, role: RoleProcess) -> None:
        """Start a role again whenever it dies; one that dies again and again waits longer."""
        now = asyncio.get_running_loop().time
        backoff, name = Backoff(RESTARTS), role.role.name
        while True:
            began = now()
            code = await role.end()
            if self._stopping.is_set():
                return
            if role.runs:  # another process has taken over from it
                await role.start()
                self._data.events.add(
                    "RoleReplaced", f"the {name} is process {role.process.pid} now"
                )
                continue
            backoff, pause_s = backoff.failed(now() - began)
            ended_at = unix_now()
            self._happened("RoleEnded", end_of(name, role.ended(code)))
            await asyncio.sleep(pause_s)
            try:
                await role.start()
                await self._healthy(role)
            except (CannotStart, DeployError, OSError) as error:
                self._happened("RoleCannotStart", f"{name}: {error}; it is tried again")
            else:
                down_s = unix_now() - ended_at
                self._happened("RoleStarted", f"the {name} works again after {down_s:.1f} s")

    def _happened(self, kind: str, message: str) -> None:
        """Say it here, and keep it for those who ask later."""
        self._data.events.add(kind, message)
        self._terminal.say(message, "red")

    async def _stop(self, roles: list[RoleProcess]) -> None:
        """Drain and stop the replicas, then the roles."""
        self._stopping.set()
        planes = [role for role in roles if role.role.name in CONTROL_PLANES and role.alive]
        if planes:
            self._terminal.say("stopping: running requests end first, then the replicas")
            await self._stop_replicas([role.role.url for role in planes])
        started = [role.process for role in roles if role.started]
        await asyncio.gather(*(process.terminate(STOP_LIMIT_S) for process in started))
        await asyncio.gather(end_replicas(self._data, STOP_LIMIT_S), end_builds(self._data))
        self._data.events.add("UpStopped", "hotplate up was stopped, and every replica with it")
        self._terminal.say("stopped")

    async def _stop_replicas(self, urls: list[str]) -> None:
        """By whichever control plane answers: one that does not act passes it on."""
        headers = {"Authorization": f"Bearer {self._data.secret('cluster-token')}"}
        limit = aiohttp.ClientTimeout(self._settings.drain_s + 2 * STOP_LIMIT_S)
        async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:
            for url in urls:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.post(f"{url}/internal/shutdown") as response:
                        await response.read()
                        if response.status == HTTPStatus.OK:
                            return
