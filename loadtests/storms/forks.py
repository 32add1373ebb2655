"""Hundreds of replicas forked at once from one template: all serve, all are unlike, all end.

Every one of them is a fork, and nothing is left of them: no process, no folder, no control group.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtests.harness.inspection import settled
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens, service_settings
from loadtests.systems.templates import SOON, ForkCount
from tests.support.patience import until
from tests.support.services.bentos import ECHO, IMAGE
from tests.support.services.calling import call

NAME = "crowd"
READY_S = 240.0
GONE_S = 60.0
ASKED_S = 5.0
UNLIKE = f"""
    @bentoml.api
    def drawn(self) -> dict:
        import random, secrets, tempfile, uuid

        import numpy

        time.sleep({ASKED_S})  # so that each replica has one
        return {{
            "pid": me(),
            "random": random.random(),
            "numpy": float(numpy.random.rand()),
            "secrets": secrets.token_hex(),
            "uuid1": uuid.uuid1().hex,
            "uuid4": uuid.uuid4().hex,
            "temporary name": tempfile.mktemp(),
        }}
"""
"""A method of the service whose answers no two replicas may have in common."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicas", type=int, default=200, help="forked at once (200)")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    source = IMAGE + ECHO + UNLIKE
    async with kitchens(folder, source=source, standby=f"{SOON}\nmemory_share = 0.5") as place:
        url = await place.deploy(NAME, min_replicas=1)
        await place.warm()
        await _scaled(place, 2)  # what a fork takes of the memory is known then
        forks, before = ForkCount(place.platform), await _cold_starts(place)
        began = time.monotonic()
        await _scaled(place, flags.replicas)
        verdict.figures["until all are ready, s"] = time.monotonic() - began
        await forks.show(verdict)
        cold = await _cold_starts(place) - before
        verdict.expect(not cold, f"{cold} of the starts were cold")
        calls = (call(f"{url}/drawn") for _ in range(flags.replicas))
        _judge(verdict, await asyncio.gather(*calls))
        again = sum(each["restarts"] for each in await place.platform.replicas(NAME))
        verdict.expect(not again, f"replicas have started again {again} times")
        await place.platform.delete(NAME)
        if trouble := await settled(place.platform, {}, GONE_S):
            verdict.broken.append(f"afterwards: {trouble}")
    return verdict


async def _cold_starts(place: Kitchens) -> int:
    pools = (await place.platform.page("standby"))["pools"]
    return sum(pool["starts"] - pool["hits"] for pool in pools)


async def _scaled(place: Kitchens, count: int) -> None:
    """Returns once so many replicas are ready."""
    wanted = service_settings(min_replicas=count, max_replicas=count)
    await place.rough.update(NAME, place.bento.tag, Kitchen=wanted)

    async def ready() -> bool:
        return len(await place.platform.replicas(NAME, "ready")) == count

    await until(ready, READY_S)


def _judge(verdict: Verdict, answers: Sequence[dict[str, Any]]) -> None:
    verdict.figures["replicas that answered"] = len({answer["pid"] for answer in answers})
    for name in sorted(answers[0].keys() - {"pid"}):
        ((value, times),) = Counter(answer[name] for answer in answers).most_common(1)
        verdict.expect(times == 1, f"{name}: {times} of {len(answers)} answers are {value}")
