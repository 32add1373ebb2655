"""Hostile Safetensors headers: what we accept the library accepts, with the same meaning."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.streaming.header_fuzzer import draw, judge

BATCH = 10_000


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many to try")
    parser.add_argument("--seed", type=int, default=1, help="the same one makes the same inputs")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    began = time.monotonic()
    batches = [
        (f"{flags.seed}/{first}", min(BATCH, flags.inputs - first))
        for first in range(0, flags.inputs, BATCH)
    ]
    total: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        tried = [loop.run_in_executor(pool, try_inputs, *batch) for batch in batches]
        for outcome in asyncio.as_completed(tried):
            counts, broken = await outcome
            total += counts
            verdict.broken += broken
    verdict.figures["inputs"] = sum(total.values())
    verdict.figures["inputs/s"] = round(sum(total.values()) / (time.monotonic() - began))
    verdict.figures |= {name: total[name] for name in sorted(total)}
    if not total["accepted by both"] or not total["refused by both"]:
        verdict.broken.append("the inputs were of one kind only, which shows nothing")
    return verdict


def try_inputs(seed: str, count: int) -> tuple[Counter[str], list[str]]:
    """How often who accepted, and a sentence for each input that shows a difference."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    broken = []
    for _ in range(count):
        file = draw(rng)
        judgement = judge(file)
        counts[_outcome(judgement.ours is not None, judgement.theirs is not None)] += 1
        if not judgement.held:
            broken.append(f"{file!r} is {judgement.ours} for us, {judgement.theirs} for them")
    return counts, broken


def _outcome(ours: bool, theirs: bool) -> str:
    if ours == theirs:
        return "accepted by both" if ours else "refused by both"
    return "accepted by us alone" if ours else "accepted by the library alone"
