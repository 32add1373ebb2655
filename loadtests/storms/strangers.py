"""Services that we did not write: how long each takes from `bentoml deploy .` to its first answer.

They are those of `tests/scenarios/public`, in the manner of public repositories, deployed by the
stock client as a user types it. All answers of a service are compared with the right ones.
"""

from __future__ import annotations

import argparse
import asyncio
import warnings
from pathlib import Path
from statistics import median

from loadtests.harness.verdict import Verdict
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.services.answers import chains, data, lives, streams, tables
from tests.support.services.public_services import NAMES, answers_of, deploy

ANSWERS = {
    name: answers
    for module in (chains, data, lives, streams, tables)
    for name, answers in answers_of(module).items()
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--services", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--at-once", type=int, default=1, help="how many are deployed side by side")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    warnings.simplefilter("ignore")  # bentoml's dependencies warn
    verdict, places = Verdict(), asyncio.Semaphore(flags.at_once)
    deploys_s: list[float] = []
    async with running(folder / "data") as platform:
        laptop = await Laptop.at(folder / "laptop", platform, typed=True)

        async def one(name: str) -> None:
            async with places:
                deploys_s.append(await _deployed(name, platform, laptop, verdict))

        await asyncio.gather(*(one(name) for name in flags.services))
    verdict.figures["deploy to first answer, p50 s"] = median(deploys_s)
    verdict.figures["deploy to first answer, longest, s"] = max(deploys_s)
    return verdict


async def _deployed(name: str, platform: Platform, laptop: Laptop, verdict: Verdict) -> float:
    """Seconds from the deploy to the first answer; the deployment is gone afterwards."""
    service = await deploy(name, platform, laptop)
    verdict.figures[f"{name}, s"] = service.first_answer_s
    try:
        await asyncio.to_thread(service.ask, ANSWERS[name])
    except AssertionError as error:
        verdict.broken.append(f"{name} gives a wrong answer: {error}")
    await platform.delete(name)
    return service.first_answer_s
