"""Weights from an origin of 250 MB/s into memory, every tensor copied once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from hotplate.platform.ports import free_port
from loadtests.child import START_S, BenchmarkFailed, Child, module, running
from loadtests.published_model import TENSOR_BYTES, PublishedModel, publish
from loadtests.report import column, median, ratio

HOST = "127.0.0.1"
BYTES_PER_S = 250e6
TRANSFER, OURS, PEER = "transfer", "stream", "fetch"
WAYS = {
    TRANSFER: "transfer alone",
    OURS: "hotplate agent, stream()",
    PEER: "fsspec, then load_file()",
}
LIMIT_S = 60.0


@dataclass(frozen=True)
class Row:
    way: str
    seconds: float | None = column("s", 2)
    transfer_ratio: float | None = column("x transfer", 3)
    after_transfer_s: float | None = column("s after it", 2)
    cpu_s_per_gb: float | None = column("CPU s / GB", 2)


@dataclass(frozen=True)
class Sample:
    seconds: float
    cpu_s: float
    """Of all processes on the reading side: the loader, and the agent."""
    digest: str


@dataclass(frozen=True)
class Agent:
    """A node's agent that has nothing yet."""

    url: str
    socket: Path
    process: Child


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    rounds, size_bytes = (1, 64 << 20) if quick else (3, 512 << 20)
    model = await asyncio.to_thread(publish, folder / "origin", size_bytes // TENSOR_BYTES)
    command = module("loadtests.origin", folder / "origin", "--bytes-per-s", BYTES_PER_S)
    samples: dict[str, list[Sample]] = {way: [] for way in WAYS}
    async with running(*command, log=folder / "origin.log", listened=True) as origin:
        url = f"http://{HOST}:{(await origin.said())['port']}"
        for number in range(rounds):
            for way in WAYS:
                own = folder / f"{number}-{way}"
                own.mkdir()
                samples[way].append(await _sample(way, model, url, own))
    if {sample.digest for sample in samples[OURS]} != {sample.digest for sample in samples[PEER]}:
        raise BenchmarkFailed("the ways did not load the same bytes")
    transfer_s = median(sample.seconds for sample in samples[TRANSFER])
    return [_row(WAYS[way], samples[way], transfer_s, model) for way in WAYS]


async def _sample(way: str, model: PublishedModel, origin: str, folder: Path) -> Sample:
    """One load, with nothing of the model on the node."""
    flags = ["--size", model.tensor_bytes, "--blob", f"{origin}/{model.blob_path}"]
    flags += ["--file", folder / "fetched.safetensors"]
    if way != OURS:
        return await _load(way, flags, folder)
    async with _agent(origin, folder, model) as agent:
        flags += ["--manifest", model.manifest, "--agent", agent.url, "--socket", agent.socket]
        before_s = agent.process.cpu_s()
        mine = await _load(way, flags, folder)
        agent_s = agent.process.cpu_s() - before_s
    return Sample(mine.seconds, mine.cpu_s + agent_s, mine.digest)


async def _load(way: str, flags: Sequence[object], folder: Path) -> Sample:
    command = module("loadtests.weight_loader", way, *flags)
    async with running(*command, log=folder / "loader.log", listened=True) as loader:
        await loader.said()
        loader.tell("go")
        return Sample(**await loader.said(LIMIT_S))


@asynccontextmanager
async def _agent(origin: str, folder: Path, model: PublishedModel) -> AsyncIterator[Agent]:
    port = free_port(HOST)
    data = folder / "agent"
    command = module(
        "hotplate.platform.cli",
        *("agent", "--data", data, "--host", HOST, "--port", port),
        *("--origin", origin, "--memory", 2 * model.tensor_bytes),
    )
    # It is not waited for: it would write to disk what nobody needs any more.
    async with running(*command, log=folder / "agent.log", grace_s=0.0) as child:
        await _healthy(f"http://{HOST}:{port}/healthz", child)
        yield Agent(f"http://{HOST}:{port}", data / "agent.sock", child)


async def _healthy(url: str, child: Child) -> None:
    ends_at = asyncio.get_running_loop().time() + START_S
    async with aiohttp.ClientSession() as session:
        while child.alive and asyncio.get_running_loop().time() < ends_at:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
    raise BenchmarkFailed(f"{url} does not answer: {child.last_words}")


def _row(way: str, samples: Sequence[Sample], transfer_s: float, model: PublishedModel) -> Row:
    seconds = median(sample.seconds for sample in samples)
    return Row(
        way,
        seconds=seconds,
        transfer_ratio=ratio(seconds, transfer_s),
        after_transfer_s=seconds - transfer_s,
        cpu_s_per_gb=median(sample.cpu_s for sample in samples) / (model.tensor_bytes / 1e9),
    )
