"""What clients of a benchmark saw, and the processes of those clients."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.child_process import module, output_of, running
from loadtests.systems.proxies import Proxy

WRK_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["X-Organization"] = "acme"
wrk.body = '{"text": "' .. string.rep("x", 1012) .. '"}'
function done(summary, latency, requests)
  local bad = summary.errors
  io.write(string.format(
    '{"answered": %d, "refused": %d, "left": 0, "failed": %d, "seconds": %f, '
    .. '"mean_ms": %f, "p50_ms": %f, "p95_ms": %f, "p99_ms": %f}\\n',
    summary.requests - bad.status, bad.status, bad.connect + bad.read + bad.write + bad.timeout,
    summary.duration / 1e6, latency.mean / 1e3, latency:percentile(50) / 1e3,
    latency:percentile(95) / 1e3, latency:percentile(99) / 1e3))
end
"""


@dataclass(frozen=True)
class Load:
    """Closed-loop clients for a while: each sends its next request when it has its answer."""

    answered: int
    """Answers with status 200 that came while the client still waited."""
    refused: int
    """Other answers."""
    left: int
    """Requests whose client left before its answer."""
    failed: int
    """Connections that broke or were refused."""
    seconds: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @property
    def answers_per_s(self) -> float:
        return self.answered / self.seconds


@asynccontextmanager
async def clients(
    proxy: Proxy,
    path: str,
    count: int,
    seconds: float,
    folder: Path,
    *,
    warmup_s: float = 0.0,
    patience_s: float = 0.0,
    organization: str = "acme",
) -> AsyncIterator[Load]:
    """Clients of a proxy in one process, which go on until the block ends. Yields what they saw.

    They leave after `patience_s`, and come back; 0 = never. What happens in the first `warmup_s`
    is not counted.
    """
    flags = ("--patience", patience_s, "--organization", organization)
    url, log = proxy.url + path, f"generator-{organization}-{proxy.url.rpartition(':')[2]}.log"
    command = [*proxy.enter, *_generator(url, count, seconds, warmup_s, *flags)]
    async with running(*command, log=folder / log, piped=True) as child:
        yield Load(**await child.next_json(warmup_s + seconds + 30))


@asynccontextmanager
async def closed_loop(
    url: str,
    count: int,
    seconds: float,
    folder: Path,
    *,
    body: str = "",
    socket: str = "",
    warmup_s: float = 0.0,
) -> AsyncIterator[Load]:
    """The same for any URL, or for a Unix socket in place of its host. The clients post `body`, or
    1 KiB if it is empty."""
    flags = ("--body", body, "--socket", socket)
    command = _generator(url, count, seconds, warmup_s, *flags)
    async with running(*command, log=folder / "generator.log", piped=True) as child:
        yield Load(**await child.next_json(warmup_s + seconds + 30))


def _generator(url: str, count: int, seconds: float, warmup_s: float, *flags: object) -> list[str]:
    times = ("--seconds", seconds, "--warmup", warmup_s)
    return module("loadtests.programs.generator", url, "--clients", count, *times, *flags)


async def saturate(proxy: Proxy, path: str, connections: int, seconds: float, folder: Path) -> Load:
    """As many requests as the connections can carry: by `wrk` if it is installed, else by ours."""
    wrk = shutil.which("wrk")
    if wrk is None:
        async with clients(proxy, path, connections, seconds, folder) as load:
            return load
    script = folder / "post.lua"
    script.write_text(WRK_SCRIPT)
    flags = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script)]
    command = [*proxy.enter, wrk, *flags, proxy.url + path]
    printed = await output_of(*command, log=folder / "wrk.log", timeout_s=seconds + 30)
    return Load(**json.loads(next(line for line in printed.splitlines() if line.startswith("{"))))
