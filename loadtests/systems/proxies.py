"""What can stand between clients and replicas: our gateway, its peers, or nothing."""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hotplate.platform.processes.ports import free_port
from loadtests.harness.accelerator import Stats
from loadtests.harness.child_process import (
    BIN,
    ROOT,
    START_S,
    BenchmarkFailed,
    Child,
    clean_environ,
    module,
    output_of,
    running,
)
from loadtests.harness.network import OWN, enter
from loadtests.harness.route_plan import Plan, RoutesFile
from loadtests.peers import ray_environment
from loadtests.peers.haproxy import configuration
from loadtests.systems.replicas import HOST, Replica, stats_at

DIRECT = "none"
OURS = "hotplate"
AIOHTTP = "aiohttp"
HAPROXY = "haproxy"
HAPROXY_ABORT = "haproxy, abortonclose"
BENTOML = "bentoml serve"
RAY = "ray serve"
RAY_HAPROXY = "ray serve, haproxy"
HEAVY = (BENTOML, RAY, RAY_HAPROXY)
"""Whole serving systems, which are slow to start."""
ROUTES = "routes.toml"
SLOW_START_S = 120.0


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs, with replicas of its own behind it."""

    name: str
    url: str
    stats_url: str
    """Of its (first) replica: a proxy may count `/stats` as a request."""
    process: Child | None
    """None where clients call the replica directly."""
    replicas: tuple[Replica, ...] = ()
    routes: RoutesFile | None = None
    """The file of its routes, which trials edit; only our gateway has one."""
    enter: tuple[str, ...] = ()
    """A command's prefix that runs it in the proxy's network, where that is one of its own."""

    def cpu_s(self) -> float:
        return 0.0 if self.process is None else self.process.cpu_s()

    async def stats(self) -> Stats:
        if not self.enter:
            return await stats_at(self.stats_url)
        command = [*self.enter, *module("loadtests.systems.replicas", self.stats_url)]
        with TemporaryDirectory() as folder:
            printed = await output_of(*command, log=Path(folder) / "stats.log", timeout_s=START_S)
        return Stats(**json.loads(printed))


Listener = tuple[int, Child | None]
"""A port, and the process that listens there, if it is not the replica itself."""
Opener = Callable[[Sequence[str], Plan, Path], AbstractAsyncContextManager[Listener]]
"""Starts a proxy of these replicas (host:port each), whose files go to a folder."""

Server = Callable[[Plan, int, Path], AbstractAsyncContextManager[Listener]]
"""Starts a peer that runs its replica in itself and serves `/stats` on this port."""


@asynccontextmanager
async def _direct(addresses: Sequence[str], plan: Plan, folder: Path) -> AsyncIterator[Listener]:
    yield int(addresses[0].rpartition(":")[2]), None


@asynccontextmanager
async def _gateway(addresses: Sequence[str], plan: Plan, folder: Path) -> AsyncIterator[Listener]:
    """Our gateway as a process, alone."""
    port = free_port(HOST)
    routes = RoutesFile(folder / ROUTES, port, plan)
    routes.write(addresses)
    command = module("hotplate.platform.cli", "gateway", "--routes", routes.path)
    async with running(*command, log=folder / "gateway.log") as child:
        await _listening(port, child)
        yield port, child


@asynccontextmanager
async def _aiohttp(addresses: Sequence[str], plan: Plan, folder: Path) -> AsyncIterator[Listener]:
    command = module(
        "loadtests.peers.aiohttp_proxy",
        *("--backend", f"http://{addresses[0]}", "--slots", plan.slots),
    )
    async with running(*command, log=folder / "aiohttp.log", piped=True) as child:
        yield (await child.next_json())["port"], child


@asynccontextmanager
async def _haproxy(
    addresses: Sequence[str], plan: Plan, folder: Path, *, abort_on_close: bool = False
) -> AsyncIterator[Listener]:
    port = free_port(HOST)
    file = folder / "haproxy.cfg"
    file.write_text(configuration(port, addresses, plan, abort_on_close=abort_on_close))
    async with running("haproxy", "-db", "-f", file, log=folder / "haproxy.log") as child:
        await _listening(port, child)
        yield port, child


@asynccontextmanager
async def _bentoml(plan: Plan, stats_port: int, folder: Path) -> AsyncIterator[Listener]:
    """The replica is in it."""
    port = free_port(HOST)
    environ = {
        **clean_environ(),
        "BENCH_SLOTS": str(plan.slots),
        "BENCH_TIMEOUT_S": str(plan.timeout_s),
        "BENCH_STATS_PORT": str(stats_port),
        "BENTOML_DO_NOT_TRACK": "true",
        "BENTOML_HOME": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    command = [str(BIN / "bentoml"), "serve", "loadtests.peers.bentoml_service:Bench"]
    where = ["--host", HOST, "--port", str(port)]
    async with running(*command, *where, log=folder / "bentoml.log", environ=environ) as child:
        await _listening(stats_port, child, SLOW_START_S)
        await _listening(port, child, SLOW_START_S)
        yield port, child


@asynccontextmanager
async def _ray(
    plan: Plan, stats_port: int, folder: Path, *, haproxy: bool
) -> AsyncIterator[Listener]:
    """The replica is in it. Ray listens on all addresses, so it gets a network of its own."""
    await ray_environment.install(folder)
    port = free_port(HOST)
    ports = free_port(HOST), free_port(HOST)
    command = [*OWN, str(ray_environment.PYTHON), "-m", "loadtests.peers.ray_app"]
    flags = ["--port", port, "--stats-port", stats_port, "--slots", plan.slots]
    log = folder / "ray.log"
    # Ray's sockets are in this folder, and their paths may not be long.
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as own:
        flags += ["--timeout", plan.timeout_s, "--folder", own]
        command += map(str, flags)
        environ = ray_environment.environ(Path(own), ports=ports, haproxy=haproxy)
        async with running(*command, log=log, environ=environ, piped=True) as ray:
            await ray.next_json(SLOW_START_S)
            yield port, ray


_OPENERS: Mapping[str, Opener] = {
    DIRECT: _direct,
    OURS: _gateway,
    AIOHTTP: _aiohttp,
    HAPROXY: _haproxy,
    HAPROXY_ABORT: functools.partial(_haproxy, abort_on_close=True),
}
_SERVERS: Mapping[str, Server] = {
    BENTOML: _bentoml,
    RAY: functools.partial(_ray, haproxy=False),
    RAY_HAPROXY: functools.partial(_ray, haproxy=True),
}


def installed(name: str) -> bool:
    return name not in (HAPROXY, HAPROXY_ABORT) or shutil.which("haproxy") is not None


@asynccontextmanager
async def opened(names: Sequence[str], plan: Plan, folder: Path) -> AsyncIterator[list[Proxy]]:
    """The proxies of these names that are installed, each with replicas of its own that run."""
    async with AsyncExitStack() as stack:
        proxies = []
        for number, name in enumerate(filter(installed, names)):
            own = folder / str(number)
            own.mkdir(parents=True)
            proxies.append(await _opened(name, plan, own, stack))
        yield proxies


@asynccontextmanager
async def served(name: str, plan: Plan, folder: Path) -> AsyncIterator[Proxy]:
    """A peer that runs its replica in itself. Raises BenchmarkFailed if it cannot be started."""
    stats_port = free_port(HOST)
    async with _SERVERS[name](plan, stats_port, folder) as (port, process):
        yield Proxy(
            name,
            url=f"http://{HOST}:{port}",
            stats_url=f"http://{HOST}:{stats_port}",
            process=process,
            enter=enter(process.pid) if process and name != BENTOML else (),
        )


async def _opened(name: str, plan: Plan, folder: Path, stack: AsyncExitStack) -> Proxy:
    replicas = []
    for number in range(plan.replicas):
        log, record = folder / f"replica-{number}.log", folder / f"replica-{number}.ids"
        replica = Replica(plan.slots, log, record)
        replicas.append(await stack.enter_async_context(replica))
        await replica.start()
    addresses = [replica.address for replica in replicas]
    opener = _OPENERS[name](addresses[: plan.named], plan, folder)
    port, process = await stack.enter_async_context(opener)
    return Proxy(
        name,
        url=f"http://{HOST}:{port}",
        stats_url=f"http://{addresses[0]}",
        process=process,
        replicas=tuple(replicas),
        routes=RoutesFile(folder / ROUTES, port, plan) if name == OURS else None,
    )


async def _listening(port: int, child: Child, limit_s: float = START_S) -> None:
    """Wait until somebody listens on the port. Raises BenchmarkFailed."""
    ends_at = asyncio.get_running_loop().time() + limit_s
    while child.alive and asyncio.get_running_loop().time() < ends_at:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    raise BenchmarkFailed(f"nobody listens on {HOST}:{port}: {child.log_tail}")
