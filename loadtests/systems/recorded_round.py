"""A round of requests of which clients, gateways and replicas write what they see, with faults in
it.

Two client processes send numbered operations to gateways on one file, which share replicas.
Meanwhile replicas and gateways are killed with SIGKILL and started again, and gateways are
replaced.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.harness.accelerator import clock
from loadtests.harness.child_process import BenchmarkFailed, module, running
from loadtests.harness.route_plan import Plan, RoutesFile
from loadtests.history import files
from loadtests.history.observations import Ended, History, Passed, Repeated, Run, Sent
from loadtests.systems.replicas import Replica
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.ports import free_port

GATEWAY = "loadtests.programs.recorded_gateway"
REPLICAS = 3
SLOTS = 4
QUEUE_LIMIT = 80
CLIENT_PROCESSES = 2
DOWN_S = 0.3
SETTLES_S = 1.0
"""How long after a fault connections to what is up again may still fail."""
ENDS_S = 600.0
Fault = Callable[[], Awaitable[None]]


@dataclass
class RecordedRound:
    """`operations` requests from the number `first` on, by so many clients in each process.

    The folder is its own. `faults` are counted by name.
    """

    folder: Path
    first: int
    operations: int
    clients: int = 48
    gateways: int = 2
    faults: Counter[str] = field(default_factory=Counter)

    async def run(self, rng: random.Random, every_s: float) -> History:
        """Runs until every request has its end, with a fault every so many seconds on average."""
        async with AsyncExitStack() as stack:
            self._stack, self._rng = stack, rng
            self._port = free_port()
            self._replicas = [
                await stack.enter_async_context(self._replica(number)) for number in range(REPLICAS)
            ]
            for replica in self._replicas:
                await replica.start()
            plan = Plan(SLOTS, REPLICAS, timeout_s=30.0, queue_limit=QUEUE_LIMIT)
            self._routes = RoutesFile(self.folder / "routes.toml", self._port, plan)
            self._routes.write([replica.address for replica in self._replicas])
            self._gateways: list[GatewayProcess] = []
            self._logs: list[Path] = []
            await asyncio.gather(*(self._start_gateway() for _ in range(self.gateways)))
            disturbed = await self._asked(every_s)
            for gateway in self._gateways:
                gateway.process.send_signal(signal.SIGTERM)
            for gateway in self._gateways:
                await gateway.process.wait()
        return self._history(disturbed)

    async def _asked(self, every_s: float) -> list[tuple[float, float]]:
        """When faults were made while the clients asked."""
        disturbed = []
        faults: list[Fault] = [self._kill_replica, self._kill_gateway, self._replace_gateway]
        made = 0
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    running(*self._client(number), log=self.folder / f"clients-{number}.log")
                )
                for number in range(CLIENT_PROCESSES)
            ]
            over = asyncio.gather(*(client.wait() for client in clients))
            async with asyncio.timeout(ENDS_S):
                while not over.done():
                    pause_s = every_s * self._rng.uniform(0.5, 1.5)
                    await asyncio.wait([over], timeout=pause_s)
                    if over.done():
                        break
                    began = clock()
                    await faults[made % len(faults)]()
                    disturbed.append((began, clock() + SETTLES_S))
                    made += 1
            for client, status in zip(clients, over.result(), strict=True):
                if status:
                    raise BenchmarkFailed(f"a client ended with {status}: {client.log_tail}")
        return disturbed

    # What is started

    @asynccontextmanager
    async def _replica(self, number: int) -> AsyncIterator[Replica]:
        log, record = (self.folder / f"replica-{number}.{kind}" for kind in ("log", "record"))
        async with Replica(SLOTS, log, record, "loadtests.programs.recorded_replica") as replica:
            yield replica

    async def _start_gateway(self, *flags: str) -> None:
        log = self.folder / f"access-{len(self._logs)}.log"
        self._logs.append(log)
        where = ("--routes", str(self._routes.path), "--access-log", str(log))
        starting = GatewayProcess.start(self.folder, *where, *flags, program=GATEWAY)
        gateway = await self._stack.enter_async_context(starting)
        await gateway.ready()
        self._gateways.append(gateway)

    def _client(self, number: int) -> list[str]:
        share = self.operations // CLIENT_PROCESSES
        rest = self.operations % CLIENT_PROCESSES if number == CLIENT_PROCESSES - 1 else 0
        return module(
            "loadtests.programs.recorded_clients",
            *(self._port, "--first", self.first + number * share, "--count", share + rest),
            *("--clients", self.clients, "--record", self._client_file(number)),
        )

    def _client_file(self, number: int) -> Path:
        return self.folder / f"clients-{number}.record"

    # Faults

    async def _kill_replica(self) -> None:
        replica = self._rng.choice(self._replicas)
        await replica.kill()
        self.faults["replicas killed"] += 1
        await asyncio.sleep(DOWN_S)
        await replica.start()

    async def _kill_gateway(self) -> None:
        """Kills one of them, and starts another: there is always one that knows the slots."""
        gateway = self._gateways.pop(self._rng.randrange(len(self._gateways)))
        gateway.process.kill()
        await gateway.process.wait()
        self.faults["gateways killed"] += 1
        await self._start_gateway()

    async def _replace_gateway(self) -> None:
        oldest = self._gateways.pop(0)
        await self._start_gateway("--replace")
        await oldest.process.wait()
        self.faults["gateways replaced"] += 1

    # What was seen

    def _history(self, disturbed: list[tuple[float, float]]) -> History:
        sent: list[Sent] = []
        repeated: list[Repeated] = []
        ended: list[Ended] = []
        runs: list[Run] = []
        passed: list[Passed] = []
        slots: dict[str, int] = {}
        for number in range(CLIENT_PROCESSES):
            began, again, over = files.client_observations(self._client_file(number))
            sent += began
            repeated += again
            ended += over
        for replica in self._replicas:
            found, of_lives = files.runs(replica.record, replica.address)
            runs += found
            slots |= of_lives
        addresses = [replica.address for replica in self._replicas]
        for log in self._logs:
            passed += files.passed(log, log.stem, addresses)
        return History(sent, repeated, ended, runs, passed, slots, disturbed)
