"""A disk that is slow for all roles: each access to a file takes 50 ms longer, and then 250 ms.

`LD_PRELOAD` of `programs/faulty_libc.c` has each read, write and fsync of a file below the data
directory wait in `up`, control plane, gateway and agent; replicas have no part in it. What is asked
of the gateway takes as long as ever, because nothing of a request is on the disk; deploys and wakes
take longer, and nothing fails.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from statistics import median

from loadtests.harness.verdict import Verdict
from loadtests.systems.faulted_platform import FaultedPlatform, faulted_platform
from loadtests.systems.faulty_libc import FaultyLibc
from tests.support.services.calling import call

CALLS = 40
MOST_SLOWER_S = 0.1
"""How much longer than before the median request may take; two cores do much else meanwhile."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=30.0, help="at each speed (30)")
    parser.add_argument(
        "--slow", type=float, nargs="+", default=[0.05, 0.25], help="seconds (each)"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    with FaultyLibc(folder, folder / "data") as libc:
        async with faulted_platform(folder, verdict, libc.environ) as trial:
            usual_s, update_s = await _latency_s(trial), await _update_s(trial)
            verdict.figures["usual: request, update, s"] = [round(usual_s, 4), round(update_s, 4)]
            for slow_s in flags.slow:
                what = f"each access {slow_s:g} s longer"
                with libc.fault(slow_s=slow_s):
                    async with trial.asked(what) as told:
                        await asyncio.sleep(flags.seconds)
                    now_s, slowed_s = await _latency_s(trial), await _update_s(trial)
                verdict.figures[f"{what}: request, update, s"] = [
                    round(now_s, 4),
                    round(slowed_s, 4),
                ]
                trial.verdict.expect(
                    slowed_s > update_s + slow_s, f"{what}: an update was not slower"
                )
                longer_s = now_s - usual_s
                trial.verdict.expect(
                    longer_s < MOST_SLOWER_S, f"{what}: requests take {longer_s:.2f} s more"
                )
                for name, one in told.items():
                    trial.verdict.expect(
                        not one.codes, f"{what}: {name} was refused: {dict(one.codes)}"
                    )
                await trial.recovered(what)
    return verdict


async def _latency_s(trial: FaultedPlatform) -> float:
    """The median of requests one after another."""
    url, now = await trial.platform.url_of("steady"), asyncio.get_running_loop().time
    lasted_s = []
    for _ in range(CALLS):
        began = now()
        await call(f"{url}/cook")
        lasted_s.append(now() - began)
    return median(lasted_s)


async def _update_s(trial: FaultedPlatform) -> float:
    """How long the API takes to accept a revision."""
    began = asyncio.get_running_loop().time()
    await trial.rough.call("PUT", "/api/v2/deployments/turning", trial.next_settings())
    return asyncio.get_running_loop().time() - began
