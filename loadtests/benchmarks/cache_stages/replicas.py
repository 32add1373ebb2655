"""Four replicas of one model on one node: their memory, and how long all but the first wait."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_most
from loadtests.harness.child_process import BenchmarkFailed, Child, clean_environ, module, running
from loadtests.harness.report import median
from loadtests.systems.agents import agent
from loadtests.systems.model_file import ModelFile, model_file
from loadtests.systems.origins import Origin, origin
from tests.support.memory import memory_of

REPLICAS = 4
SIZE_BYTES, QUICK_BYTES = 1 << 30, 64 << 20
LIMIT_S = 60.0


@dataclass(frozen=True)
class Sample:
    first_s: float
    second_s: float
    memory_bytes: int
    """What replicas and agent share, each page counted once, and what replicas have alone."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    model = model_file(folder / "origin", QUICK_BYTES if quick else SIZE_BYTES)
    samples = []
    async with origin(model.root, folder / "origin.log") as source:
        for number in range(1 if quick else 3):
            own = folder / str(number)
            own.mkdir()
            samples.append(await _sample(model, source, own))
    size = f"{REPLICAS} replicas of {model.size_bytes / 2**30:.2g} GiB"
    memory = median(one.memory_bytes for one in samples) / model.size_bytes
    second_ms = median(one.second_s for one in samples) * 1000
    first_ms = median(one.first_s for one in samples) * 1000
    return [
        row(f"{size}: memory for weights, x size", {"ours": memory}, at_most(1.1)),
        row(f"{size}: the first waits for its weights, ms", {"ours": first_ms}, digits=0),
        row(f"{size}: the second, ms", {"ours": second_ms}, at_most(50), 0),
    ]


async def _sample(model: ModelFile, source: Origin, folder: Path) -> Sample:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            agent(folder / "agent", memory_bytes=2 * model.size_bytes)
        )
        command = module("loadtests.programs.model_replica", source.url_of(model))
        environ = {**clean_environ(), **node.environ}
        replicas = []
        for number in range(REPLICAS):
            log = folder / f"replica-{number}.log"
            started = running(*command, log=log, environ=environ, piped=True)
            replicas.append(await stack.enter_async_context(started))
        for replica in replicas:
            await replica.next_json(LIMIT_S)
        before_bytes = sum(_own_bytes(one) for one in replicas)
        results = []
        for replica in replicas:
            replica.write_line("go")
            results.append(await replica.next_json(LIMIT_S))
        shared_bytes = sum(memory_of(one.pid)["shared"] for one in (node.process, *replicas))
        own_bytes = sum(_own_bytes(one) for one in replicas) - before_bytes
    if len({(one["tensors"], one["read"]) for one in results}) != 1:
        raise BenchmarkFailed("the replicas did not read the same bytes")
    return Sample(results[0]["seconds"], results[1]["seconds"], shared_bytes + own_bytes)


def _own_bytes(replica: Child) -> int:
    memory = memory_of(replica.pid)
    return memory["anonymous"] + memory["files"]
