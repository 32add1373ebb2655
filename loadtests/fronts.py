"""What can stand between clients and a replica: our gateway, its peers, or nothing."""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from hotplate.platform.ports import free_port
from hotplate.serving.gateway.routes import ReplicaRoute, Route, RouteTable
from loadtests.child import START_S, BenchmarkFailed, Child, module, running
from loadtests.control_plane import telling
from loadtests.peers import haproxy

HOST = "127.0.0.1"
DIRECT = "none"
OURS = "hotplate"
AIOHTTP = "aiohttp"
HAPROXY = "haproxy"
HAPROXY_ABORT = "haproxy, abortonclose"


@dataclass(frozen=True)
class Front:
    """One that runs, with a backend of its own behind it."""

    url: str
    backend_url: str
    process: Child | None
    """None: nothing stands before the backend."""

    def cpu_s(self) -> float:
        return 0.0 if self.process is None else self.process.cpu_s()

    async def most_at_once(self) -> int:
        """How many handlers ran at the same time in the backend, at most."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.backend_url}/stats") as answer,
        ):
            most: int = (await answer.json())["most"]
            return most


Listener = tuple[int, Child | None]
"""A port, and the process that listens there, if it is not the backend itself."""
Opener = Callable[[str, int, Path], AbstractAsyncContextManager[Listener]]
"""Starts what stands before a backend (host:port) with so many slots; its files go to a folder."""


@asynccontextmanager
async def _direct(backend: str, slots: int, folder: Path) -> AsyncIterator[Listener]:
    yield int(backend.rpartition(":")[2]), None


@asynccontextmanager
async def _gateway(backend: str, slots: int, folder: Path) -> AsyncIterator[Listener]:
    """Our gateway as a process, told its route by a stand-in for the control plane."""
    port = free_port(HOST)
    route = Route("bench/route", HOST, port, (ReplicaRoute("r1", backend, slots),))
    token = folder / "token"
    token.write_text("bench")
    state = folder / "state"
    state.mkdir()
    async with telling(RouteTable(1, (route,))) as plane:
        command = module(
            "hotplate.platform.cli",
            *("gateway", "--control-plane", plane.url, "--token-file", token),
            *("--state", state, "--admin", f"{HOST}:0"),
        )
        async with running(*command, log=folder / "gateway.log") as child:
            await plane.in_force()
            yield port, child


@asynccontextmanager
async def _aiohttp(backend: str, slots: int, folder: Path) -> AsyncIterator[Listener]:
    command = module(
        "loadtests.peers.aiohttp_proxy", "--backend", f"http://{backend}", "--slots", slots
    )
    async with running(*command, log=folder / "aiohttp.log", listened=True) as child:
        yield (await child.said())["port"], child


@asynccontextmanager
async def _haproxy(
    backend: str, slots: int, folder: Path, *, abort_on_close: bool
) -> AsyncIterator[Listener]:
    port = free_port(HOST)
    file = folder / "haproxy.cfg"
    file.write_text(haproxy.configuration(port, backend, slots, abort_on_close=abort_on_close))
    async with running("haproxy", "-db", "-f", file, log=folder / "haproxy.log") as child:
        await _listening(port, child)
        yield port, child


_OPENERS: Mapping[str, Opener] = {
    DIRECT: _direct,
    OURS: _gateway,
    AIOHTTP: _aiohttp,
    HAPROXY: functools.partial(_haproxy, abort_on_close=False),
    HAPROXY_ABORT: functools.partial(_haproxy, abort_on_close=True),
}


def installed(name: str) -> bool:
    return name not in (HAPROXY, HAPROXY_ABORT) or shutil.which("haproxy") is not None


@asynccontextmanager
async def opened(names: list[str], slots: int, folder: Path) -> AsyncIterator[dict[str, Front]]:
    """The fronts of these names that are installed, each with its backend of `slots` slots."""
    async with AsyncExitStack() as stack:
        fronts = {}
        for number, name in enumerate(filter(installed, names)):
            own = folder / str(number)
            own.mkdir(parents=True)
            command = module("loadtests.backend", "--concurrency", slots)
            backend = await stack.enter_async_context(
                running(*command, log=own / "backend.log", listened=True)
            )
            address = f"{HOST}:{(await backend.said())['port']}"
            port, process = await stack.enter_async_context(_OPENERS[name](address, slots, own))
            fronts[name] = Front(f"http://{HOST}:{port}", f"http://{address}", process)
        yield fronts


async def _listening(port: int, child: Child) -> None:
    """Wait until somebody listens on the port. Raises BenchmarkFailed."""
    ends_at = asyncio.get_running_loop().time() + START_S
    while child.alive and asyncio.get_running_loop().time() < ends_at:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    raise BenchmarkFailed(f"nobody listens on {HOST}:{port}: {child.last_words}")
