"""Wake-ups: from zero to the first answer, by phases; and deploys whose environment exists already.

One client on the same machine calls one replica at a time. The client's wait has three parts: until
the platform wants a replica, its cold start, and from then until the answer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from loadtests.harness.verdict import Verdict
from tests.support.end_to_end.cold_start import ColdStart
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, output_of, running
from tests.support.services.bentos import SLEEPY
from tests.support.services.calling import call

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PHASES = ("instance", "environment", "weights", "process", "init")
TOLERATED = 0.05
"""The share by which the phases of a cold start may differ from the whole."""
NAME = "woken"


@dataclass(frozen=True)
class Example:
    """A folder of `examples`, and a request that its service answers."""

    folder: str
    service: str
    path: str
    fields: dict[str, Any]
    model: str = ""
    """The program that saves its model, where it has one."""


BENTOS = {
    "hello": Example("hello", "Hello", "greet", {"name": "Ada"}),
    "embedder": Example(
        "embedder", "Embedder", "embed", {"sentences": ["A cat sits."]}, "save_model.py"
    ),
}


@dataclass(frozen=True)
class Wake:
    """One request to a deployment without replicas; seconds."""

    whole_s: float
    before_s: float
    """Until a replica was wanted."""
    cold_start: ColdStart
    after_s: float
    """From ready to the answer."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wakes", type=int, default=30, help="requests from zero")
    parser.add_argument("--deploys", type=int, default=5, help="of a changed bento, by the client")
    parser.add_argument("--bento", choices=BENTOS, default="hello", help="folder of examples")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    example, verdict = BENTOS[flags.bento], Verdict()
    async with running(folder / "data") as platform:
        laptop = await Laptop.at(folder / "laptop", platform, typed=True)
        project = laptop.home / "project"
        shutil.copytree(EXAMPLES / example.folder, project)
        if example.model:
            await output_of([sys.executable, example.model], laptop.environ, project)
        first_s = await _deploy(platform, laptop, example, project)
        verdict.figures["first deploy to first answer, s"] = first_s
        wakes = [await _wake(platform, example) for _ in range(flags.wakes)]
        _report(wakes, with_weights=bool(example.model), verdict=verdict)
        deploys_s = []
        for number in range(flags.deploys):
            await platform.delete(NAME)
            with (project / "service.py").open("a") as source:
                source.write(f"# change {number}\n")
            deploys_s.append(await _deploy(platform, laptop, example, project))
        _percentiles("deploy to first answer, warm environment", deploys_s, verdict)
        await platform.delete(NAME)
    return verdict


async def _deploy(platform: Platform, laptop: Laptop, example: Example, project: Path) -> float:
    """`bentoml deploy .` as a user types it, and one request; seconds."""
    began = time.monotonic()
    await laptop.deploy(NAME, ".", project, **{example.service: {"scaling": SLEEPY}})
    await call(f"{await platform.url_of(NAME)}/{example.path}", **example.fields)
    return time.monotonic() - began


async def _wake(platform: Platform, example: Example) -> Wake:
    url = f"{await platform.url_of(NAME)}/{example.path}"
    await platform.asleep(NAME)
    asked_at = time.time()
    await call(url, **example.fields)
    answered_at = time.time()
    start = ColdStart.of((await platform.ask(NAME, "/cold_starts?count=1"))[0])
    assert start.wanted_at > asked_at - 1, "this is the cold start before this one"
    return Wake(
        answered_at - asked_at, start.wanted_at - asked_at, start, answered_at - start.ready_at
    )


def _report(wakes: list[Wake], with_weights: bool, verdict: Verdict) -> None:
    starts = [wake.cold_start for wake in wakes]
    _percentiles("zero to first answer", [wake.whole_s for wake in wakes], verdict)
    _percentiles("  until a replica is wanted", [wake.before_s for wake in wakes], verdict)
    _percentiles("  cold start", [start.whole_s for start in starts], verdict)
    for phase in PHASES:
        lengths_s = [start.length_s.get(phase, 0.0) for start in starts]
        shares_s = [start.share_s.get(phase, 0.0) for start in starts]
        verdict.figures[f"    {phase}: lasted, waited for, p50 s"] = (
            f"{median(lengths_s):.3f}, {median(shares_s):.3f}"
        )
    _percentiles("  from ready to the answer", [wake.after_s for wake in wakes], verdict)
    errors = {"shares": [start.share_error for start in starts]}
    errors["lengths"] = [start.length_error for start in starts]
    for what, found in errors.items():
        verdict.figures[f"{what} of phases, greatest error, %"] = 100 * max(found)
        judged = what == "shares" or not with_weights
        if judged and max(found) > TOLERATED:
            verdict.broken.append(
                f"the {what} of the phases of a cold start differ by {max(found):.1%} from the "
                f"whole, more than {TOLERATED:.0%}"
            )


def _percentiles(what: str, seconds: list[float], verdict: Verdict) -> None:
    ordered = sorted(seconds)
    p95 = quantiles(ordered, n=20, method="inclusive")[-1] if len(ordered) > 1 else ordered[0]
    verdict.figures[f"{what}, p50 s"] = median(ordered)
    verdict.figures[f"{what}, p95 s"] = p95
