"""Weights from the node's memory to a GPU, beside pinned memory to the same GPU."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from hotplate.cache.client import AgentClient
from hotplate.platform.ports import free_port
from loadtests.child import BenchmarkFailed, module, running
from loadtests.gpu_loader import write
from loadtests.report import column, median, ratio

HOST = "127.0.0.1"
LAYERS, QUICK_LAYERS = 1280, 64
"""10.7 GB, and half a GB."""
ROUNDS = 3
LIMIT_S = 120.0
PINNED, OURS = "pinned", "stream"
WAYS = {
    PINNED: "pinned memory, nothing else",
    OURS: "hotplate agent, stream()",
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
    gb_per_s: float | None = column("GB/s", 2)
    pinned_ratio: float | None = column("x pinned", 3)
    remark: str = ""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    if not torch.cuda.is_available():
        return [Row("not measured", remark="there is no GPU here that PyTorch can use")]
    layers, rounds = (QUICK_LAYERS, 1) if quick else (LAYERS, ROUNDS)
    with tempfile.TemporaryDirectory(dir=MEMORY) as memory:
        files = {name: Path(memory) / f"{name}.safetensors" for name in ("small", "large")}
        await asyncio.to_thread(write, files["small"], 8)
        size_bytes = await asyncio.to_thread(write, files["large"], layers)
        port = free_port(HOST)
        data = folder / "agent"
        flags = ("--data", data, "--host", HOST, "--port", port, "--memory", 2 * size_bytes)
        command = module("hotplate.platform.cli", "agent", *flags)
        async with running(*command, log=folder / "agent.log", grace_s=0.0):
            client = AgentClient(f"http://{HOST}:{port}")
            for file in files.values():
                await client.pull(f"file://{file}")
            await client.close()
            return await _rows(folder, files, layers, size_bytes, rounds, f"{HOST}:{port}")


async def _rows(
    folder: Path, files: dict[str, Path], layers: int, size_bytes: int, rounds: int, agent: str
) -> list[Row]:
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    remarks: dict[str, str] = {}
    for _ in range(rounds):
        for way in WAYS:
            scheme = "file://" if way == OURS else ""
            flags = ["--file", f"{scheme}{files['large']}", "--small", f"{scheme}{files['small']}"]
            flags += ["--layers", str(layers), "--agent", agent]
            if way in remarks or (remark := _lacking(way)):
                remarks.setdefault(way, remark)
                continue
            try:
                seconds[way].append(await _load(way, flags, folder / f"{way}.log"))
            except BenchmarkFailed as error:
                if way in (PINNED, OURS):
                    raise
                remarks[way] = str(error)
    pinned_s = median(seconds[PINNED])
    return [
        Row(
            title,
            gb_per_s=size_bytes / 1e9 / median(seconds[way]) if seconds[way] else None,
            pinned_ratio=ratio(pinned_s, median(seconds[way])) if seconds[way] else None,
            remark=remarks.get(way, ""),
        )
        for way, title in WAYS.items()
    ]


def _lacking(way: str) -> str:
    """Why a peer cannot be measured; empty if it can."""
    if way in (PINNED, OURS, "load_file") or find_spec(PEERS.get(way, way)) is not None:
        return ""
    return "not installed here"


async def _load(way: str, flags: Sequence[str], log: Path) -> float:
    command = module("loadtests.gpu_loader", way, *flags)
    async with running(*command, log=log, listened=True) as loader:
        await loader.said(LIMIT_S)
        loader.tell("go")
        said = await loader.said(LIMIT_S)
    if said["wrong"]:
        raise BenchmarkFailed(f"{WAYS[way]}: {said['wrong']} tensors are wrong or missing")
    return float(said["seconds"])
