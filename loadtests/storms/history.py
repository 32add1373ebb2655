"""A recorded history of a million requests, which a checker finds to keep every guarantee.

Clients, gateways and replicas are processes that write what they see (`systems/recorded_round.py`),
while replicas and gateways are killed and replaced. `history/guarantees.py` says what is checked,
and by which clock. Each round has processes and files of its own, and is checked before the next
one begins.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

from loadtests.harness.accelerator import clock
from loadtests.harness.verdict import Verdict
from loadtests.history.guarantees import turns_of, violations
from loadtests.history.observations import History
from loadtests.systems.recorded_round import RecordedRound

SHOWN = 20
"""Violations that are shown of one round; more are mostly the same."""
MUST_HAPPEN = (
    "replicas killed",
    "gateways killed",
    "gateways replaced",
    "refused",
    "cut",
    "left",
    "handlers killed",
    "run again",
    "compared in order",
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--operations", type=int, default=1_000_000, help="requests (1,000,000)")
    parser.add_argument("--round", type=int, default=50_000, help="of them in a round (50,000)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between faults (2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="copy the records of rounds with violations there"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    rng, counts, verdict = random.Random(flags.seed), Counter[str](), Verdict()
    began, first = clock(), 1
    while first <= flags.operations and not verdict.broken:
        place = folder / f"round-{first}"
        place.mkdir()
        operations = min(flags.round, flags.operations + 1 - first)
        trial = RecordedRound(place, first, operations)
        history = await trial.run(rng, flags.every)
        counts += trial.faults + await asyncio.to_thread(happened, history)
        found = await asyncio.to_thread(lambda seen: list(islice(violations(seen), SHOWN)), history)
        verdict.broken += found
        if found and flags.keep:
            shutil.copytree(place, flags.keep / place.name, dirs_exist_ok=True)
        shutil.rmtree(place)
        first += operations
        print(
            f"{first - 1:>9,} requests in {clock() - began:.0f} s: {len(found)} violations",
            flush=True,
        )
    verdict.figures |= dict(sorted(counts.items()))
    verdict.broken += [f"nothing was tried: no {what}" for what in MUST_HAPPEN if not counts[what]]
    return verdict


def happened(history: History) -> Counter[str]:
    """How requests ended, and what else was seen."""
    counts = Counter[str](end.outcome for end in history.ended)
    counts["requests"] = len(history.sent)
    counts["handlers begun"] = len(history.runs)
    counts["handlers killed"] = sum(run.ended_at is None for run in history.runs)
    counts["run again"] = len(history.runs) - len({run.request for run in history.runs})
    counts["compared in order"] = sum(map(len, turns_of(history).values()))
    return counts
