"""A model at full speed: from a peer beside a bare transfer, and from S3 beside runai."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from loadtests.benchmarks.cache_stages.loading import (
    AIOHTTP,
    COLUMNS,
    FASTSAFETENSORS,
    FSSPEC,
    INSTALLED,
    LOAD,
    RUNAI,
    STREAM,
    TRANSFER,
    Sample,
    load,
)
from loadtests.benchmarks.cache_stages.stream import check_same_bytes
from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_least, at_most
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.report import median
from loadtests.peers import weights_environment
from loadtests.systems.agents import Agent, agent
from loadtests.systems.model_file import ModelFile, model_file
from loadtests.systems.origins import Origin, origin

SIZE_BYTES, QUICK_BYTES = 1 << 30, 64 << 20
CONNECTIONS = 2
"""As many as cores: more do not make a bare transfer faster."""
PULL, FROM_S3 = "pull", "stream from S3"
OURS = (PULL, STREAM, LOAD, FROM_S3)
BARE = (TRANSFER, PULL)
ROUNDS, BARE_ROUNDS = 3, 7
"""These two take less than half a second each, and differ by a tenth between rounds."""


@dataclass(frozen=True)
class Stage:
    model: ModelFile
    source: Origin
    peer: Agent
    """It has the model."""

    @property
    def s3_url(self) -> str:
        return f"s3://{self.model.key}"


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    ways, missing = [TRANSFER, PULL, STREAM, LOAD, FSSPEC, AIOHTTP], []
    if find_spec("s3fs") is None:
        missing.append(Row("not hotplate from S3: s3fs is not installed", holds="NO"))
    else:
        ways.append(FROM_S3)
    try:
        await weights_environment.install(folder)
        ways += INSTALLED
    except BenchmarkFailed as error:
        missing.append(Row(f"not {', '.join(INSTALLED)}: {error}"))
    model = model_file(folder / "origin", QUICK_BYTES if quick else SIZE_BYTES)
    samples: dict[str, list[Sample]] = {way: [] for way in ways}
    async with (
        origin(model.root, folder / "origin.log") as source,
        agent(folder / "peer", memory_bytes=2 * model.size_bytes) as peer,
    ):
        stage = Stage(model, source, peer)
        await peer.pull(source.url_of(model), folder / "pull.log")
        for number in range(1 if quick else BARE_ROUNDS):
            for way in BARE if number >= ROUNDS else ways:
                own = folder / f"{number}-{way}"
                own.mkdir()
                samples[way].append(await _sample(way, stage, own))
    check_same_bytes({way: found for way, found in samples.items() if way != PULL})
    return [*_rows(model, samples), *missing]


async def _sample(way: str, stage: Stage, folder: Path) -> Sample:
    url = stage.source.url_of(stage.model)
    if way not in OURS:
        return await load(
            way,
            stage.model,
            stage.s3_url if way == RUNAI else url,
            folder,
            connections=CONNECTIONS,
            verify=True,
            environ=stage.source.s3,
        )
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(
            agent(
                folder / "agent",
                memory_bytes=2 * stage.model.size_bytes,
                peers=[] if way == FROM_S3 else [stage.peer.address],
                token_file=stage.peer.token_file,
                environ=stage.source.s3,
            )
        )
        await reader.process.until_idle()  # it allocates memory first, as `transfer` does
        if way == PULL:
            return await _pull(reader, url, folder)
        if way == FROM_S3:
            return await load(STREAM, stage.model, stage.s3_url, folder, agent=reader)
        return await load(way, stage.model, url, folder, agent=reader)


async def _pull(reader: Agent, url: str, folder: Path) -> Sample:
    """Pulls the bytes, verified, into the node's memory, without making tensors."""
    async with reader.puller(url, folder / "pull.log") as puller:
        before_s = reader.process.cpu_s()
        pulled = await puller.pull()
        return Sample(pulled["seconds"], reader.process.cpu_s() - before_s, "")


def _rows(model: ModelFile, samples: Mapping[str, Sequence[Sample]]) -> Sequence[Row]:
    size_gb = model.tensor_bytes / 1e9
    speeds = {way: size_gb / median(one.seconds for one in samples[way]) for way in samples}
    cpu = {way: median(one.cpu_s for one in samples[way]) / size_gb for way in samples}
    wire, what = speeds[TRANSFER], f"{size_gb:.2g} GB unpaced"
    columns = {FROM_S3: "ours", RUNAI: COLUMNS[RUNAI]}
    from_s3 = {column: speeds[way] for way, column in columns.items() if way in speeds}
    rows = [
        row(f"{what}, pulled and verified: GB/s", {"ours": speeds[PULL], "raw": wire}),
        row(f"{what}: x raw recv_into + BLAKE3", {"ours": speeds[PULL] / wire}, at_least(0.9)),
        row(f"{what}: CPU s / GB", {"ours": cpu[PULL], "raw": cpu[TRANSFER]}, at_most(0.8)),
        row(f"{what}, every tensor copied: GB/s", _of_loads(speeds)),
        row(f"{what}, every tensor copied: CPU s / GB", _of_loads(cpu)),
        row(f"{what}, from S3: GB/s", from_s3),
    ]
    if len(from_s3) == len(columns):
        ratio = speeds[FROM_S3] / speeds[RUNAI]
        rows.append(row(f"{what}, from S3: x runai", {"ours": ratio}, at_least(3)))
    return rows


def _of_loads(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures of the ways that make tensors, by column."""
    loads = (STREAM, LOAD, FSSPEC, AIOHTTP, FASTSAFETENSORS, RUNAI)
    return {COLUMNS[way]: figures[way] for way in loads if way in figures}
