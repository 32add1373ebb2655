"""Hostile Safetensors headers: the library accepts what we accept, with the same meaning."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.streaming.header_fuzzer import try_inputs

BATCH = 10_000


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many to try")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")


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
