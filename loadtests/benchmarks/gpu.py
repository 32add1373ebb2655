"""Weights from the node's memory to a GPU, beside pinned memory to the same GPU."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hotplate.deploy.local.machine import memory_bytes
from loadtests.harness.child_process import BenchmarkFailed, checkout_environ, module, running
from loadtests.harness.report import column, median, ratio
from loadtests.systems.streamed_folder import StreamedFolder, streamed

LAYERS, QUICK_LAYERS = 1280, 64
"""10.7 GB, and half a GB."""
LAYER_BYTES = (8 << 20) + (8 << 10)
MEMORY_TIMES, GPU_TIMES = 4, 2.5
"""A file is in memory as a file, in the arena, in the agent's disk cache, and in a peer's buffers;
on the GPU in a peer's buffer and as tensors."""
ROUNDS = 3
ROUNDS_S = 60.0
"""No round begins later."""
LIMIT_S = 120.0
PINNED, FIRST, OURS = "pinned", "first", "stream"
WAYS = {
    PINNED: "pinned memory, nothing else",
    FIRST: "stream(), first replica: the file arrives",
    OURS: "stream(), second replica: from the arena",
    "load_file": "safetensors load_file()",
    "runai": "runai-model-streamer",
    "fastsafetensors": "fastsafetensors",
    "instanttensor": "InstantTensor",
}
PEERS = {"runai": "runai_model_streamer"}
"""What to import, where it is not the way's own name."""
MEMORY = Path("/dev/shm")
"""The peers' file is in memory too."""


@dataclass(frozen=True)
class Row:
    way: str
    seconds: float | None = column("s", 2)
    gb_per_s: float | None = column("GB/s", 2)
    pinned_ratio: float | None = column("x pinned", 3)
    remark: str = ""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    import torch  # imported here, because the benchmark is listed without PyTorch too

    if not torch.cuda.is_available():
        return [Row("not measured", remark="there is no GPU here that PyTorch can use")]
    place = _place()
    fitting = layers_that_fit(_free_bytes(place), torch.cuda.mem_get_info()[0])
    layers = min(QUICK_LAYERS if quick else LAYERS, fitting)
    with tempfile.TemporaryDirectory(dir=place) as memory:
        files = {name: Path(memory) / f"{name}.safetensors" for name in ("small", "large")}
        await _write(files["small"], 8, folder)
        await _write(files["large"], layers, folder)
        size_bytes = layers * LAYER_BYTES
        async with streamed(folder, Path(memory), 2 * size_bytes) as source:
            return await _rows(folder, files, layers, 1 if quick else ROUNDS, source)


def _place() -> Path:
    """A folder whose files are in memory. Where it is too small, as in most containers, it is one
    on disk, whose files are in the page cache."""
    return max(MEMORY, Path(tempfile.gettempdir()), key=_room)


def _room(folder: Path) -> int:
    """The free bytes that matter: no more than the largest file has."""
    return min(_free_bytes(folder), LAYERS * LAYER_BYTES)


def _free_bytes(folder: Path) -> int:
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


def layers_that_fit(place_bytes: int, gpu_bytes: int) -> int:
    """The number of layers of the largest file for which there is room. Raises BenchmarkFailed."""
    room_bytes = min(
        place_bytes,
        int(min(memory_bytes(), _available_bytes()) / MEMORY_TIMES),
        int(gpu_bytes / GPU_TIMES),
    )
    if room_bytes < QUICK_LAYERS * LAYER_BYTES:
        raise BenchmarkFailed(
            f"there is room for {room_bytes / 1e9:.2f} GB of weights in files, memory and on the "
            f"GPU; {QUICK_LAYERS * LAYER_BYTES / 1e9:.2f} GB are the least"
        )
    return room_bytes // LAYER_BYTES


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 1024 * next(found)


async def _write(file: Path, layers: int, folder: Path) -> None:
    """Writes a file by a process of its own, whose memory is free afterwards."""
    command = module("loadtests.programs.gpu_loader", "write", "--file", file, "--layers", layers)
    log, environ = folder / "write.log", checkout_environ()
    async with running(*command, log=log, environ=environ, piped=True) as writer:
        await writer.next_json(LIMIT_S)


async def _rows(
    folder: Path, files: dict[str, Path], layers: int, rounds: int, source: StreamedFolder
) -> list[Row]:
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    remarks: dict[str, str] = {PINNED: f"{layers * LAYER_BYTES / 1e9:.1f} GB"}
    if source.remark:
        remarks[OURS] = remarks[FIRST] = source.remark
    failed = {way: remark for way in WAYS if (remark := _lacking(way))}
    began = time.perf_counter()
    for turn in range(rounds):
        if turn and time.perf_counter() - began > ROUNDS_S:
            break
        for way in WAYS:
            if way in failed or (way == FIRST and turn):
                continue
            try:
                seconds[way].append(await _load(way, files, layers, source, folder / f"{way}.log"))
            except BenchmarkFailed as error:
                if way == PINNED:
                    raise
                failed[way] = str(error)
    remarks |= failed
    pinned_s = median(seconds[PINNED])
    return [_row(way, seconds[way], pinned_s, layers, remarks.get(way, "")) for way in WAYS]


def _row(way: str, seconds: list[float], pinned_s: float, layers: int, remark: str) -> Row:
    if not seconds:
        return Row(WAYS[way], remark=remark)
    took_s = median(seconds)
    speed = layers * LAYER_BYTES / 1e9 / took_s
    return Row(WAYS[way], took_s, speed, ratio(pinned_s, took_s), remark)


def _lacking(way: str) -> str:
    """Why a peer cannot be measured; empty if it can."""
    if way in (PINNED, FIRST, OURS, "load_file") or find_spec(PEERS.get(way, way)) is not None:
        return ""
    return "not installed here"


async def _load(
    way: str, files: dict[str, Path], layers: int, source: StreamedFolder, log: Path
) -> float:
    ours = way in (FIRST, OURS)
    scheme = source.scheme if ours else ""
    flags = ["--file", f"{scheme}{files['large']}", "--small", f"{scheme}{files['small']}"]
    program = OURS if ours else way
    command = module("loadtests.programs.gpu_loader", program, *flags, "--layers", layers)
    async with running(*command, log=log, environ=source.environ, piped=True) as loader:
        await loader.next_json(LIMIT_S)
        loader.write_line("go")
        result = await loader.next_json(LIMIT_S)
    if result["wrong"]:
        raise BenchmarkFailed(f"{result['wrong']} tensors are wrong or missing")
    return float(result["seconds"])
