"""WebSocket callers that vanish one after the other, from handlers that never return.

There are two slots, and each caller comes when the one before it has gone. At the end the replica
must be stopped, although its handlers go on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.patience import until
from tests.support.services.bentos import SLEEPY
from tests.support.services.sockets import DEAF, HANDSHAKE_S, NEVER_RETURN, Visitor

NAME = "deaf"
ZERO_S = 90.0
"""From the last caller's end: 10 s of its slot, the replica's idle time, and 30 s to stop it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--callers", type=int, default=20, help="one after the other")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with running(folder / "data") as platform:
        laptop = await Laptop.at(folder / "laptop", platform, typed=True)
        tag = await laptop.build(NAME, DEAF)
        await laptop.deploy(NAME, tag, Deaf={"scaling": SLEEPY})
        handshakes_s = await _visit(platform, flags.callers)
        verdict.figures["callers that vanished"] = flags.callers
        verdict.figures["handshake, most s"] = f"{max(handshakes_s):.2f}"
        late = [each for each in handshakes_s if each > HANDSHAKE_S]
        if late:
            verdict.broken.append(f"{len(late)} handshakes took more than {HANDSHAKE_S:g} s")
        await _sleep(platform, verdict)
    return verdict


async def _visit(platform: Platform, callers: int) -> list[float]:
    """How long each one's handshake took, seconds."""
    url = await platform.url_of(NAME)
    handshakes_s = []
    for number in range(callers):
        visitor = await Visitor.of(url, NEVER_RETURN[number % 2])
        handshakes_s.append(visitor.handshake_s)
        visitor.vanish(reset=number // 2 % 2 == 1)
    return handshakes_s


async def _sleep(platform: Platform, verdict: Verdict) -> None:
    """From the last caller's end until there is no replica."""
    left_at, abandoned = time.monotonic(), 0

    async def stopping() -> bool:
        nonlocal abandoned
        replicas = await platform.replicas(NAME)
        abandoned = max([abandoned, *(r["abandoned_handlers"] for r in replicas)])
        return all(replica["state"] == "stopping" for replica in replicas)

    async def gone() -> bool:
        return not await platform.replicas(NAME)

    try:
        await until(stopping, ZERO_S)
        verdict.figures["abandoned handlers, most"] = abandoned
        verdict.figures["last caller gone to replica told to stop, s"] = time.monotonic() - left_at
        await until(gone, ZERO_S)
        verdict.figures["last caller gone to zero replicas, s"] = time.monotonic() - left_at
    except TimeoutError:
        verdict.broken.append(f"a replica was still there {ZERO_S:g} s after the last caller")
