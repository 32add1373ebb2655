"""Stand-ins for replicas as processes: started, asked, killed, started again at their address."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from hotplate.platform.processes.ports import is_free
from loadtests.harness.accelerator import Stats
from loadtests.harness.child_process import Child, module, running

HOST = "127.0.0.1"


class Replica:
    """One process of `program`. It runs from `start` until it is killed, or the block ends."""

    def __init__(
        self,
        slots: int,
        log: Path,
        record: Path,
        program: str = "loadtests.programs.backend",
    ) -> None:
        """What its handlers do is appended to the file `record`; by default the ids of the requests
        that have begun."""
        port = _steady_port()
        self.address = f"{HOST}:{port}"
        self.record = record
        self._log = log
        self._command = module(
            program,
            *("--concurrency", slots, "--port", port, "--record", record),
        )
        self._stack = AsyncExitStack()
        self._process: Child | None = None

    async def start(self) -> None:
        """Returns when it listens. Raises BenchmarkFailed."""
        child = running(*self._command, log=self._log, piped=True, grace_s=0.0)
        self._process = await self._stack.enter_async_context(child)
        await self._process.next_json()

    async def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        assert self._process is not None, "it has been started"
        self._process.kill()
        await self._process.wait()

    async def stats(self) -> Stats:
        return await stats_at(f"http://{self.address}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()


async def stats_at(url: str) -> Stats:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/stats") as answer:
        return Stats(**await answer.json())


def _steady_port() -> int:
    """A free port that no outgoing connection is given while its replica is down (ip(7))."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(max(1024, first - 12_000), first)
        if is_free(HOST, port):
            return port


if __name__ == "__main__":
    # For proxies in a network of their own: this runs in it, and prints the replica's statistics.
    print(json.dumps(asdict(asyncio.run(stats_at(sys.argv[1])))))
