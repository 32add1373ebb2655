"""Quotas: the controller, and random events beside it at each moment at which it waits."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

from loadtests.harness.verdict import Verdict
from tests.support.control_plane.racing_world import BusyStore, walk


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--walks", type=int, default=200, help="how many walks of 60 steps each (200)"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same walks")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    exceeded = full = 0
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        seeds = range(flags.seed, flags.seed + flags.walks)
        walks = [loop.run_in_executor(pool, go, folder / f"{seed}.db", seed) for seed in seeds]
        for seed, going in zip(seeds, walks, strict=True):
            too_many, times_full = await going
            exceeded += too_many
            full += times_full
            if too_many:
                verdict.broken.append(f"the quota was exceeded {too_many} times with seed {seed}")
    verdict.figures |= {"walks": flags.walks, "exceeded": exceeded, "steps at a full quota": full}
    if not full:
        verdict.broken.append("no walk used a quota up, which shows nothing")
    return verdict


def go(path: Path, seed: int) -> tuple[int, int]:
    """One walk on a database of its own."""
    logging.disable(logging.ERROR)
    store = BusyStore(path)
    try:
        return asyncio.run(walk(store, Random(seed), 60))
    finally:
        store.close()
