"""The example's embedder with batches and no concurrency: its answers a second, and its batches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from loadtests.benchmarks.slot_trials.pairs import pairs
from loadtests.benchmarks.slot_trials.table import Row, beside
from loadtests.harness.bounds import Bound, at_least
from loadtests.harness.child_process import ROOT, BenchmarkFailed
from loadtests.harness.installation import installation, save_model
from loadtests.systems.load import closed_loop

EXAMPLE = ROOT / "examples" / "embedder"
AS_WRITTEN = (
    ('@bentoml.service(image=IMAGE, traffic={"concurrency": 2, "timeout": 60}, threads=2)',
     "@bentoml.service(image=IMAGE)"),
    ("@bentoml.api\n", "@bentoml.api(batchable=True)\n"),
)  # fmt: skip
"""Text of the example's service, and what replaces it here."""
ONE = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
BODY = json.dumps({"sentences": ["A cat sits on the mat."]})
CLIENTS = 32
WARMUP_S, SECONDS = 5.0, 15.0
METRIC = "bentoml_service_adaptive_batch_size"
PAIRS = 7


@dataclass(frozen=True)
class Sample:
    answers_per_s: float
    p50_ms: float
    batch: float
    """The mean size of the batches that BentoML made, in calls."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = project_of(folder / "embedder")
    async with installation(folder) as here:
        await save_model(here, EXAMPLE)
        sample = partial(_sample, here.home, 2.0 if quick else SECONDS)
        found = await pairs(here, source, {"Embedder": ONE}, sample, 1 if quick else PAIRS)
    rates = [(own.answers_per_s, peer.answers_per_s) for own, peer in found]
    times = [(own.p50_ms, peer.p50_ms) for own, peer in found]
    sizes = [(own.batch, peer.batch) for own, peer in found]
    several = Bound("> 1", lambda mean: mean > 1)
    return [
        beside(f"{CLIENTS} clients, batchable embedder: answers/s", rates, of_peer=at_least(1.0)),
        beside("the same: p50, ms", times),
        beside("the same: mean batch, calls", sizes, ours=several),
    ]


def project_of(folder: Path) -> Path:
    """A copy of the example whose service sets nothing."""
    shutil.copytree(EXAMPLE, folder)
    (folder / "deployment.yaml").unlink()
    text = (folder / "service.py").read_text()
    for old, new in AS_WRITTEN:
        if old not in text:
            raise BenchmarkFailed(f"the example's service no longer has {old!r}")
        text = text.replace(old, new)
    (folder / "service.py").write_text(text)
    return folder


async def _sample(folder: Path, seconds: float, url: str) -> Sample:
    count, calls = await _batches(url)
    async with closed_loop(
        f"{url}/embed", CLIENTS, seconds, folder, body=BODY, warmup_s=WARMUP_S
    ) as load:
        after = await _batches(url)
    if load.refused or load.failed:
        raise BenchmarkFailed(f"{url}: {load.refused} answers were errors, {load.failed} failed")
    made = max(1.0, after[0] - count)
    return Sample(load.answers_per_s, load.p50_ms, (after[1] - calls) / made)


async def _batches(url: str) -> tuple[float, float]:
    """How many batches there were, and of how many calls, since the service began."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found = {"_count": 0.0, "_sum": 0.0}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            part = one.name.removeprefix(METRIC)
            if part in found:
                found[part] += one.value
    return found["_count"], found["_sum"]
