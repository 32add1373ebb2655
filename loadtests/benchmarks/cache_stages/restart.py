"""What a node that has a model reads from the origin when the model is wanted again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import exactly
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.systems.agents import agent
from loadtests.systems.model_file import BLOBS, ModelFile, model_file, publish
from loadtests.systems.origins import origin

SIZE_BYTES, QUICK_BYTES = 512 << 20, 24 << 20
FLUSH_S = 60.0


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    model = model_file(folder / "origin", QUICK_BYTES if quick else SIZE_BYTES)
    first, again, killed = await _restarted(model, folder)
    deployed, redeployed = await _redeployed(model, folder)
    if not first == deployed == model.size_bytes:
        raise BenchmarkFailed(f"{first} and {deployed} bytes came the first time")
    what = f"{model.size_bytes / 1e9:.2g} GB: bytes from the origin"
    return [
        row(f"{what}, agent stopped and started", {"ours": again}, exactly(0), 0),
        row(f"{what}, agent killed and started", {"ours": killed}, exactly(0), 0),
        row(f"{what}, in another revision", {"ours": redeployed}, exactly(0), 0),
    ]


async def _restarted(model: ModelFile, folder: Path) -> list[float]:
    """What each of three agents takes from the origin, one after another on one data folder."""
    found = []
    async with origin(model.root, folder / "origin.log") as source:
        for grace_s in (FLUSH_S, 0.0, 0.0):
            before_bytes = await source.sent_bytes()
            async with agent(folder / "agent", memory_bytes=4 << 30, grace_s=grace_s) as node:
                await node.pull(source.url_of(model), folder / "pull.log")
                found.append(float(await source.sent_bytes() - before_bytes))
    return found


async def _redeployed(model: ModelFile, folder: Path) -> list[float]:
    """The same for two manifests that name the model's file, one after another on one agent."""
    found, manifests = [], publish(model, "one/model.safetensors", "two/model.safetensors")
    async with (
        origin(model.root, folder / "origin.log") as source,
        agent(folder / "node", memory_bytes=4 << 30, origin=source.url) as node,
    ):
        client = node.client()
        try:
            for manifest in manifests:
                before_bytes = await source.sent_bytes(BLOBS)
                await client.tree(manifest, wait="all")
                found.append(float(await source.sent_bytes(BLOBS) - before_bytes))
        finally:
            await client.close()
    return found
