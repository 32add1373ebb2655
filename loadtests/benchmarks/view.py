"""The file view: complete files beside raw ones, and `load_file` while the file arrives."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hotplate.cache.blobs import BlobStore
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Entry, Manifest, chunk_digest
from hotplate.cache.packing import pack_tree
from hotplate.platform.ports import free_port
from loadtests.child import BenchmarkFailed, module, running
from loadtests.report import column, median

PARTS = ["complete", "streaming", "environment"]
BYTES_PER_S = 1e9
LIMIT_S = 200.0
_FILE = "model.safetensors"
_SITE = "lib/python3/site-packages"
_TENSOR_BYTES = 8 << 20


@dataclass(frozen=True)
class Row:
    figure: str
    raw_gb_per_s: float | None = column("raw GB/s", 2)
    view_gb_per_s: float | None = column("view GB/s", 2)
    of_raw: float | None = column("x raw", 2)
    seconds: float | None = column("s", 2)
    of_bytes: float | None = column("x bytes", 3)
    to_reach: str = column("to reach")
    holds: str = column("holds")


@dataclass(frozen=True)
class _Model:
    """A Safetensors file in the layout of a blob store."""

    store: Path
    manifest: str
    path: Path
    size_bytes: int


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    model = await asyncio.to_thread(_publish, folder / "store", 8 if quick else 128)
    rows: list[Row] = []
    if "complete" in (parts or PARTS):
        rows += await _complete(model, folder, 3 if quick else 9)
    if "streaming" in (parts or PARTS):
        rows.append(await _streaming(model, folder, 1 if quick else 3))
    if "environment" in (parts or PARTS):
        rows += await _environment(folder, 2_000 if quick else 20_000)
    return rows


async def _complete(model: _Model, folder: Path, rounds: int) -> list[Row]:
    """The raw file is a copy on the same disk; both are in the page cache."""
    raw = folder / "raw"
    await asyncio.to_thread(shutil.copyfile, model.path, raw)
    rows = []
    async with _agent(folder / "complete", f"file://{model.store}") as client:
        await client.tree(model.manifest, wait="all")
        seen = Path((await client.tree(model.manifest, wait="view")).root, _FILE)
        for way in ("read", "mmap"):
            seconds = await _read(folder, way, rounds, raw, seen)
            raw_s, view_s = (median(times) for times in zip(*seconds, strict=True))
            of_raw = median(first / second for first, second in seconds)
            rows.append(_row(f"complete file, {way}", model, raw_s, view_s, of_raw, 0.95))
    return rows


async def _environment(folder: Path, files: int) -> list[Row]:
    """A fat environment on a node that has nothing of it, and a service that needs one package."""
    root, store = folder / "environment", folder / "environments"
    await asyncio.to_thread(_build, root, files)
    manifest = await asyncio.to_thread(pack_tree, root, BlobStore(f"file://{store}"))
    loop = asyncio.get_running_loop()
    async with _agent(folder / "node", f"file://{store}") as client:
        began = loop.time()
        seen = Path((await client.tree(manifest.digest, wait="view")).root)
        await _run(sys.executable, "-c", f"import os; os.listdir({str(seen / _SITE)!r})")
        appeared_s = loop.time() - began
        program = f"import sys; sys.path.insert(0, {str(seen / _SITE)!r}); import package_7.all"
        await _run(sys.executable, "-c", program)
        origin_bytes = (await client.status())["origin_bytes"]
    part = origin_bytes / manifest.size_bytes
    name = f"environment of {files:,} files"
    return [
        Row(
            f"{name} appears",
            seconds=appeared_s,
            to_reach="about 1 s",
            holds=_holds(appeared_s < 2),
        ),
        Row(f"{name}, a slim service", of_bytes=part, to_reach="< 0.2", holds=_holds(part < 0.2)),
    ]


def _build(root: Path, files: int) -> None:
    """Packages of 100 modules, 5 KB each on average, and what each one imports all of."""
    for number in range(files // 100):
        package = root / _SITE / f"package_{number}"
        package.mkdir(parents=True)
        names = [f"module_{module}" for module in range(98)]
        for at, name in enumerate(names):
            text = f"DATA = {os.urandom(50 * at).hex()!r}\n"
            (package / f"{name}.py").write_text(text)
        (package / "__init__.py").touch()
        lines = (f"import package_{number}.{name}" for name in names)
        (package / "all.py").write_text("\n".join(lines))


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait() != 0:
        raise BenchmarkFailed(f"{command[-1]} ended with {process.returncode}")


async def _streaming(model: _Model, folder: Path, rounds: int) -> Row:
    """Raw is the agent's own fetch of the same file from the same origin, with nobody reading."""
    command = module("loadtests.origin", model.store, "--bytes-per-s", BYTES_PER_S)
    alone, beside = [], []
    async with running(*command, log=folder / "origin.log", listened=True) as origin:
        url = f"http://127.0.0.1:{(await origin.said())['port']}"
        for number in range(rounds):
            async with _agent(folder / f"alone-{number}", url) as client:
                alone.append(await _fetch(client, model))
            async with _agent(folder / f"beside-{number}", url) as client:
                seen = Path((await client.tree(model.manifest, wait="view")).root, _FILE)
                ((seconds,),) = await _read(folder, "load", 1, seen)
                beside.append(seconds)
    of_raw = median(first / second for first, second in zip(alone, beside, strict=True))
    figure = "load_file while it arrives at 1 GB/s"
    return _row(figure, model, median(alone), median(beside), of_raw, 0.8)


async def _fetch(client: AgentClient, model: _Model) -> float:
    """Seconds until every byte is verified."""
    began = asyncio.get_running_loop().time()
    tree = await client.tree(model.manifest)
    while tree.bytes_verified < tree.bytes_total:
        await asyncio.sleep(0.005)
        tree = await client.progress(model.manifest)
    return asyncio.get_running_loop().time() - began


async def _read(folder: Path, way: str, rounds: int, *paths: Path) -> list[list[float]]:
    """Seconds of each path, round by round."""
    command = module("loadtests.view_reader", way, rounds, *paths)
    async with running(*command, log=folder / "reader.log", listened=True) as reader:
        await reader.said()
        reader.tell("go")
        seconds: list[list[float]] = (await reader.said(LIMIT_S))["seconds"]
        return seconds


@asynccontextmanager
async def _agent(data: Path, origin: str) -> AsyncIterator[AgentClient]:
    """An agent with a view. Raises BenchmarkFailed where there can be none."""
    port = free_port("127.0.0.1")
    flags = ("--data", data, "--port", port, "--origin", origin, "--memory", "4GiB")
    command = module("hotplate.platform.cli", "agent", *flags)
    client = AgentClient(f"http://127.0.0.1:{port}")
    async with running(*command, log=data.with_suffix(".log")) as child:
        try:
            await client.check()
            view = (await client.status())["view"]
            if view["mount"] is None:
                raise BenchmarkFailed(f"there is no file view: {view['refusal']}")
            yield client
        except CacheError as error:
            raise BenchmarkFailed(f"{error}; {child.last_words}") from error
        finally:
            await client.close()


def _row(
    figure: str, model: _Model, raw_s: float, view_s: float, of_raw: float, least: float
) -> Row:
    gigabytes = model.size_bytes / 1e9
    return Row(
        figure,
        raw_gb_per_s=gigabytes / raw_s,
        view_gb_per_s=gigabytes / view_s,
        of_raw=of_raw,
        to_reach=f">= {least:g}",
        holds=_holds(of_raw >= least),
    )


def _holds(reached: bool) -> str:
    return "yes" if reached else "NO"


def _publish(store: Path, tensors: int) -> _Model:
    draft = store / _FILE
    store.mkdir()
    _write(draft, tensors)
    with draft.open("rb") as file:
        chunks = tuple(chunk_digest(chunk) for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))
    blob = Blob(draft.stat().st_size, chunks)
    path = store / "blobs" / blob.digest[:2] / blob.digest
    path.parent.mkdir(parents=True)
    draft.rename(path)
    manifest = Manifest((Entry(_FILE, blob=blob),))
    (store / "manifests").mkdir()
    (store / "manifests" / f"{manifest.digest}.json").write_bytes(manifest.to_bytes())
    return _Model(store, manifest.digest, path, blob.size_bytes)


def _write(path: Path, tensors: int) -> None:
    header = {
        f"layer.{number:04d}": {
            "dtype": "F16",
            "shape": [_TENSOR_BYTES // 2],
            "data_offsets": [number * _TENSOR_BYTES, (number + 1) * _TENSOR_BYTES],
        }
        for number in range(tensors)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(tensors):
            file.write(os.urandom(_TENSOR_BYTES))
