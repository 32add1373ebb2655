"""The file view: complete files beside raw ones, and `load_file` while the file arrives."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hotplate.cache.client import AgentClient
from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_least
from loadtests.harness.child_process import BenchmarkFailed, module, running
from loadtests.harness.report import median
from loadtests.systems.agents import agent
from loadtests.systems.model_file import ModelFile, model_file, publish
from loadtests.systems.origins import origin

BYTES_PER_S = 1e9
ORIGIN_CONNECTIONS = 4
"""How many connections an agent opens to an origin; they share the speed."""
SIZE_BYTES, QUICK_BYTES = 1 << 30, 64 << 20
LIMIT_S = 200.0


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    model = model_file(folder / "store", QUICK_BYTES if quick else SIZE_BYTES)
    (manifest,) = publish(model, model.name)
    rows = await _complete(model, manifest, folder, 3 if quick else 9)
    return [*rows, await _streaming(model, manifest, folder, 1 if quick else 3)]


async def _complete(model: ModelFile, manifest: str, folder: Path, rounds: int) -> list[Row]:
    """Reads complete files. The raw file is a copy on the same disk; both are in the page cache."""
    raw = folder / "raw"
    await asyncio.to_thread(shutil.copyfile, model.path, raw)
    rows = []
    async with viewed(folder / "complete", f"file://{model.root}") as client:
        await client.tree(manifest, wait="all")
        seen = Path((await client.tree(manifest, wait="view")).root, model.name)
        for way in ("read", "mmap"):
            seconds = await _read(folder, way, rounds, raw, seen)
            of_raw = median(first / second for first, second in seconds)
            figure = f"complete file through the view, {way}: x the raw file"
            rows.append(row(figure, {"ours": of_raw}, at_least(0.95)))
    return rows


async def _streaming(model: ModelFile, manifest: str, folder: Path, rounds: int) -> Row:
    """`load_file` beside the agent's own fetch of the same file from the same origin."""
    found = []
    each = BYTES_PER_S / ORIGIN_CONNECTIONS
    async with origin(model.root, folder / "origin.log", each) as source:
        for number in range(rounds):
            async with viewed(folder / f"alone-{number}", source.url) as client:
                alone_s = await _fetch(client, manifest)
            async with viewed(folder / f"beside-{number}", source.url) as client:
                seen = Path((await client.tree(manifest, wait="view")).root, model.name)
                ((seconds,),) = await _read(folder, "load", 1, seen)
            found.append(alone_s / seconds)
    figure = "load_file through the view while it arrives at 1 GB/s: x that speed"
    return row(figure, {"ours": median(found)}, at_least(0.8))


async def _fetch(client: AgentClient, manifest: str) -> float:
    """Seconds until every byte is verified."""
    began = asyncio.get_running_loop().time()
    tree = await client.tree(manifest)
    while tree.bytes_verified < tree.bytes_total:
        await asyncio.sleep(0.02)
        tree = await client.progress(manifest)
    return asyncio.get_running_loop().time() - began


async def _read(folder: Path, way: str, rounds: int, *paths: Path) -> list[list[float]]:
    """Seconds of each path, round by round."""
    command = module("loadtests.programs.view_reader", way, rounds, *paths)
    async with running(*command, log=folder / "reader.log", piped=True) as reader:
        await reader.next_json()
        reader.write_line("go")
        seconds: list[list[float]] = (await reader.next_json(LIMIT_S))["seconds"]
        return seconds


@asynccontextmanager
async def viewed(data: Path, url: str) -> AsyncIterator[AgentClient]:
    """An agent with a file view. Raises BenchmarkFailed where it cannot be mounted."""
    view = data.with_name(f"{data.name}-view")
    # The grace is for the unmount.
    async with agent(data, memory_bytes=4 << 30, origin=url, view=view, grace_s=30.0) as node:
        client = node.client()
        try:
            view_status = (await client.status())["view"]
            if view_status["mount"] is None:
                raise BenchmarkFailed(f"there is no file view: {view_status['refusal']}")
            await node.process.until_idle()  # it allocates memory first
            yield client
        finally:
            await client.close()
