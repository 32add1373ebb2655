"""The queue alone: random events beside a model of it, chosen by hypothesis and by chance.

Pure and in virtual time, so a hundred thousand steps take about a minute.
"""  # noqa: A005 - nothing imports it by that name alone

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from loadtests.harness.verdict import Verdict
from tests.support.gateway.queue_machine import QueueMachine, wander
from tests.support.gateway.queue_walk import Walk

STEPS = 50
"""Steps of one of hypothesis' machines."""
STRIDE = 5000
"""Random steps of one walk."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=int, default=100_000, help="least number of steps of both kinds together"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random walks")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    walked, ends = _walk(flags.steps // 2, flags.seed, verdict)
    machines = _let_hypothesis_choose(flags.steps - walked, verdict)
    verdict.figures["steps of random walks"] = walked
    verdict.figures["steps chosen by hypothesis"] = QueueMachine.steps
    verdict.figures["machines of hypothesis"] = machines
    for how, count in sorted(ends.items()):
        verdict.figures[f"tickets that were: {how}"] = count
    verdict.figures["violations"] = len(verdict.broken)
    if walked + QueueMachine.steps < flags.steps and not verdict.broken:
        verdict.broken.append(f"{walked + QueueMachine.steps} steps were taken of {flags.steps}")
    return verdict


def _walk(steps: int, seed: int, verdict: Verdict) -> tuple[int, Counter[str]]:
    walked, ends = 0, Counter[str]()
    while walked < steps:
        walk = Walk()
        try:
            wander(walk, random.Random(seed + walked), STRIDE)
        except AssertionError as error:
            verdict.broken.append(f"walk {seed + walked}, step {walk.steps}: {error}")
        walked += walk.steps
        ends += walk.ends
    return walked, ends


def _let_hypothesis_choose(steps: int, verdict: Verdict) -> int:
    """Runs machines for so many steps; hypothesis shows the steps of a failing one."""
    machines = 0
    profile = settings(
        max_examples=200,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    while QueueMachine.steps < steps and not verdict.broken:
        machines += profile.max_examples
        try:
            run_state_machine_as_test(QueueMachine, settings=profile)
        except AssertionError as error:
            verdict.broken.append(f"hypothesis: {error}")
    return machines
