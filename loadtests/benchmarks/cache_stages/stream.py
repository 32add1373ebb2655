"""Weights from one peer of a given speed into memory, beside a bare transfer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.benchmarks.cache_stages.loading import (
    AIOHTTP,
    COLUMNS,
    FSSPEC,
    LOAD,
    STREAM,
    TRANSFER,
    Sample,
    load,
)
from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_most
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.pace import pace_process
from loadtests.harness.report import median
from loadtests.systems.agents import Agent, agent
from loadtests.systems.model_file import ModelFile, model_file
from loadtests.systems.origins import Origin, origin

PEER_CONNECTIONS = 4
"""How many connections an agent opens to a peer; they share the speed."""
WAYS = (TRANSFER, STREAM, LOAD, FSSPEC, AIOHTTP)


@dataclass(frozen=True)
class Speed:
    name: str
    bytes_per_s: float
    size_bytes: int
    most: float
    """How long a load may take, as a multiple of the transfer."""


SPEEDS = (Speed("1 GB/s", 1e9, 2 << 30, 1.05), Speed("125 MB/s", 125e6, 512 << 20, 1.02))
QUICK_BYTES = 64 << 20


@dataclass(frozen=True)
class Stage:
    """What all ways share at one speed."""

    model: ModelFile
    fast: Origin
    paced: Origin
    peer: Agent
    """It has the model."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    rows: list[Row] = []
    for number, speed in enumerate(SPEEDS):
        own = folder / str(number)
        own.mkdir()
        size_bytes = QUICK_BYTES if quick else speed.size_bytes
        rows += await _at(speed, size_bytes, 1 if quick else 3, own)
    return rows


async def _at(speed: Speed, size_bytes: int, rounds: int, folder: Path) -> Sequence[Row]:
    model = model_file(folder / "origin", size_bytes)
    async with (
        origin(model.root, folder / "fast.log") as fast,
        origin(model.root, folder / "paced.log", speed.bytes_per_s) as paced,
        agent(folder / "peer", memory_bytes=2 * size_bytes) as peer,
    ):
        await peer.pull(fast.url_of(model), folder / "pull.log")
        pace_process(peer.process.pid, speed.bytes_per_s / PEER_CONNECTIONS)
        stage, samples = Stage(model, fast, paced, peer), dict[str, list[Sample]]()
        for number in range(rounds):
            for way in WAYS:
                own = folder / f"{number}-{way}"
                own.mkdir()
                samples.setdefault(way, []).append(await _sample(way, stage, own))
    check_same_bytes(samples)
    return _rows(speed, model, samples)


async def _sample(way: str, stage: Stage, folder: Path) -> Sample:
    """One load on a node that has nothing of the model."""
    if way not in (STREAM, LOAD):
        return await load(way, stage.model, stage.paced.url_of(stage.model), folder)
    url, before_bytes = stage.fast.url_of(stage.model), await stage.fast.sent_bytes()
    memory_bytes = 2 * stage.model.size_bytes
    peers = [stage.peer.address]
    token_file = stage.peer.token_file
    async with agent(
        folder / "agent", memory_bytes=memory_bytes, peers=peers, token_file=token_file
    ) as reader:
        await reader.process.until_idle()  # it allocates memory first, as `transfer` does
        found = await load(way, stage.model, url, folder, agent=reader)
    if sent := await stage.fast.sent_bytes() - before_bytes:
        raise BenchmarkFailed(f"{sent} bytes came from the origin although a peer has the model")
    return found


def check_same_bytes(samples: Mapping[str, Iterable[Sample]]) -> None:
    """Raises BenchmarkFailed unless all ways that make tensors made the same ones."""
    digests = {one.digest for way in samples if way != TRANSFER for one in samples[way]}
    if len(digests) > 1:
        raise BenchmarkFailed("the ways did not load the same bytes")


def _rows(speed: Speed, model: ModelFile, samples: Mapping[str, Sequence[Sample]]) -> Sequence[Row]:
    size_gb = model.tensor_bytes / 1e9
    seconds = {COLUMNS[way]: median(one.seconds for one in samples[way]) for way in WAYS}
    cpu = {COLUMNS[way]: median(one.cpu_s for one in samples[way]) / size_gb for way in WAYS}
    ratios = {name: value / seconds["raw"] for name, value in seconds.items()}
    what = f"{size_gb:.2g} GB from a peer of {speed.name}"
    return [
        row(f"{what}: x transfer", ratios, at_most(speed.most), 3),
        row(f"{what}: s", seconds),
        row(f"{what}: CPU s / GB", cpu),
    ]
