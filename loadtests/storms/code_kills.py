"""Kill -9 of the control plane, the agent or the replica in the middle of a save of a code space.

The stock client watches in a terminal. At moments that are spread over two seconds after a save,
one process after another is killed. The client goes on, or ends and is attached again; then the
saved file is answered with, and every file that was acknowledged is there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path

from loadtests.harness.inspection import leader_of
from loadtests.harness.verdict import Verdict
from loadtests.systems.code_folder import NAME, SERVICE, answer_of, save
from tests.support.end_to_end.code_client import coding
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.patience import until

VICTIMS = ("control-plane", "agent", "replica")
SPREAD_S = 2.0
ANSWERED_S, BUILT_S = 60.0, 600.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--moments", type=int, default=21, help="kills (21)")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    async with running(folder / "data") as platform, AsyncExitStack() as opened:
        laptop = await Laptop.at(folder / "laptop", platform)
        author = Author(platform, laptop, laptop.project(NAME, SERVICE), opened)
        await author.begin()
        for number in range(1, flags.moments + 1):
            victim = VICTIMS[number % len(VICTIMS)]
            await author.save_and_kill(f"word {number}", victim, SPREAD_S * number / flags.moments)
        author.verdict.figures |= {**author.counts, **author.slowest_s}
        return author.verdict


@dataclass
class Author:
    """Saves files, and attaches again when the client has ended."""

    platform: Platform
    laptop: Laptop
    project: Path
    opened: AsyncExitStack
    verdict: Verdict = field(default_factory=Verdict)
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: dict[str, float] = field(default_factory=dict)

    async def begin(self) -> None:
        save(self.project, "word 0")
        self.client = await self.opened.enter_async_context(coding(self.laptop, self.project))
        await self.client.begin(NAME)
        self.url = await self.platform.url_of(NAME)
        await self._answered("word 0", BUILT_S)

    async def save_and_kill(self, word: str, victim: str, after_s: float) -> None:
        shown = len(self.client.output)
        began = time.monotonic()
        save(self.project, word)
        await asyncio.sleep(after_s)
        await self._kill(victim)

        async def over() -> bool:
            return self.client.ended or await answer_of(self.url) == word

        await until(over, ANSWERED_S)
        await until(self.platform.healthy, ANSWERED_S)
        if self.client.ended:
            self._ended(victim, self.client.output[shown:])
            await self._attach()
        await self._answered(word, ANSWERED_S)
        slowest = f"slowest answer after a kill of the {victim}, s"
        took_s = time.monotonic() - began
        self.slowest_s[slowest] = max(took_s, self.slowest_s.get(slowest, 0.0))
        self.counts[f"kills of the {victim}"] += 1
        await self._check_files(word)

    async def _attach(self) -> None:
        self.client = await self.opened.enter_async_context(
            coding(self.laptop, self.project, f"code . --attach {NAME}")
        )
        await self.client.printed("Endpoint:")

    async def _kill(self, victim: str) -> None:
        if victim != "replica":
            os.kill(self.platform.pid(victim), signal.SIGKILL)
            return
        for replica in await self.platform.replicas(NAME):
            if leader := leader_of(self.platform, replica["id"]):
                with suppress(ProcessLookupError):
                    os.kill(leader, signal.SIGKILL)

    async def _answered(self, word: str, within_s: float) -> None:
        async def so() -> bool:
            return await answer_of(self.url) == word

        await until(so, within_s)

    def _ended(self, victim: str, printed: str) -> None:
        """Only without a control plane, which the stock client does not catch."""
        said = [line for line in printed.splitlines() if line.strip()][-1]
        self.counts[f"ends of the client with the {victim}"] += 1
        fine = victim == "control-plane" and said.startswith("httpx.")
        self.verdict.expect(fine, f"the client ended with the {victim}: {said}")

    async def _check_files(self, word: str) -> None:
        async with RoughClient(self.platform) as api:
            listed = (await api.call("GET", f"/api/v2/deployments/{NAME}/files"))["files"]
        kept = {file["path"]: file["md5"] for file in listed}
        wanted = md5((self.project / "words.py").read_bytes(), usedforsecurity=False).hexdigest()
        if kept.get("words.py") != wanted:
            self.verdict.broken.append(f"{word}: the file that was saved is not kept")
