"""Many deployments: asleep, alive at once, made and deleted one after another.

What they cost while nobody calls them, and what is left of them when they are gone.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hotplate.platform.store.database import Database
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import RolloutOutcome
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import AWAKE, Kitchens, kitchens, service_settings
from tests.support.end_to_end import census
from tests.support.end_to_end.census import ROLES, Census
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until
from tests.support.processor import cpu_s
from tests.support.services.calling import Refused, call

AT_ONCE = 4
"""How many deployments are made at the same time; more of them would only wait for a core."""
MADE_S = 120.0
SWEPT_S = 90.0
"""How long what nobody uses may stay after the last deletion; the platform's grace is in it."""
SETTLING_S = 2.0
CALM_CORE_SHARE = 0.05
"""Of one core, for all roles together, while nobody calls any of them."""
GROWTH_BYTES = 12 << 20
"""A role may take this much more after the second half of the deploys than after the first:
allocators keep some memory, but what is kept for each deployment would show."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zero", type=int, default=200, help="deployments that sleep")
    parser.add_argument("--alive", type=int, default=20, help="deployments with a replica each")
    parser.add_argument("--deploys", type=int, default=30, help="made, called and deleted in turn")
    parser.add_argument("--revisions", type=int, default=30, help="of one deployment")
    parser.add_argument(
        "--stored",
        action="store_true",
        help="write the sleeping ones into the store as rolled out, in place of rolling them out",
    )
    parser.add_argument(
        "--idle", type=float, default=20.0, help="seconds for which the idle platform is watched"
    )


@dataclass
class Fleet:
    """Where its deployments are made, and what was found."""

    place: Kitchens
    temporary: Path
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def platform(self) -> Platform:
        return self.place.platform

    def count(self) -> Census:
        return census.take(self.platform, self.temporary)

    def note_memory(self, what: str, counted: Census) -> None:
        for role in ROLES:
            mib = counted.memory_bytes[role] / (1 << 20)
            self.verdict.figures[f"{what}: {role}, MiB"] = round(mib, 1)

    async def swept(self, before: Census, after_what: str) -> None:
        """Waits until nothing is left that was not there before, else notes what is."""

        async def clean() -> bool:
            return not self.count().leftovers(before)

        try:
            await until(clean, SWEPT_S)
        except TimeoutError:
            left = self.count().leftovers(before)
            self.verdict.broken += [f"after {after_what}: {sentence}" for sentence in left]


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    temporary = folder / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    async with kitchens(folder, ports=flags.zero + flags.alive + 10) as place:
        fleet, platform = Fleet(place, temporary), place.platform
        await place.deploy("first")
        await platform.asleep("first")
        await _in_turn(fleet, flags.deploys)
        await _revisions(fleet, flags.revisions)
        await _asleep(fleet, flags.zero, flags.idle, stored=flags.stored)
        await _alive(fleet, flags.alive)
        fleet.verdict.expect(await platform.stop() == 0, "`hotplate up` did not end well")
        fleet.verdict.expect(
            not platform.processes(), "processes are left after the platform's end"
        )
    return fleet.verdict


async def _in_turn(fleet: Fleet, deploys: int) -> None:
    """Deployments one after another, each with a bento of its own, called once and deleted."""
    await _come_and_go(fleet, "warm-up")
    before = middle = fleet.count()
    began = time.monotonic()
    for number in range(deploys):
        await _come_and_go(fleet, f"passing-{number}")
        if number == deploys // 2:
            middle = fleet.count()
    fleet.verdict.figures["deploys in turn"] = deploys
    fleet.verdict.figures["each, s"] = (time.monotonic() - began) / max(1, deploys)
    fleet.note_memory("before the deploys in turn", before)
    await fleet.swept(before, f"{deploys} deploys")
    after = fleet.count()
    fleet.note_memory("after the deploys in turn", after)
    _check_growth(fleet, middle, after, f"{deploys - deploys // 2} deploys")


async def _come_and_go(fleet: Fleet, name: str) -> None:
    answer = await fleet.place.come_and_go(name)
    fleet.verdict.expect(answer["version"] == name, f"{name} answered as {answer['version']}")


async def _revisions(fleet: Fleet, revisions: int) -> None:
    """Revisions of one deployment, each with a changed variable."""
    url = await fleet.platform.url_of("first")
    before = middle = fleet.count()
    body = {"bento": "kitchen:v1", "services": {"Kitchen": service_settings()}}
    began = time.monotonic()
    for number in range(revisions):
        envs = [{"name": "NUMBER", "value": str(number)}]
        await fleet.place.rough.call("PUT", "/api/v2/deployments/first", {**body, "envs": envs})
        await _is_ready(fleet, "first")
        if number == revisions // 2:
            middle = fleet.count()
    await call(f"{url}/cook")
    fleet.verdict.figures["revisions in turn"] = revisions
    fleet.verdict.figures["each revision, s"] = (time.monotonic() - began) / max(1, revisions)
    await fleet.platform.asleep("first")
    await fleet.swept(before, f"{revisions} revisions")
    after = fleet.count()
    fleet.note_memory("after the revisions", after)
    _check_growth(fleet, middle, after, f"{revisions - revisions // 2} revisions")


def _check_growth(fleet: Fleet, middle: Census, after: Census, what: str) -> None:
    for role in ROLES:
        grown = after.memory_bytes[role] - middle.memory_bytes[role]
        sentence = f"{role} has grown by {grown >> 20} MiB in {what}"
        fleet.verdict.expect(grown < GROWTH_BYTES, sentence)


async def _asleep(fleet: Fleet, count: int, idle_s: float, *, stored: bool) -> None:
    names = [f"asleep-{number:03d}" for number in range(count)]
    began = time.monotonic()
    await (_store(fleet, names) if stored else _make(fleet, names, {}))
    for name in names:
        await fleet.platform.asleep(name)
    figures = fleet.verdict.figures
    figures["deployments asleep"] = count
    figures["made in, s"] = time.monotonic() - began
    await asyncio.sleep(SETTLING_S)
    pids = {role: fleet.platform.pid(role) for role in ROLES}
    before = {role: cpu_s(pid) for role, pid in pids.items()}
    began = time.monotonic()
    await asyncio.sleep(idle_s)
    lasted_s = time.monotonic() - began
    shares = {role: (cpu_s(pids[role]) - before[role]) / lasted_s for role in ROLES}
    for role, share in shares.items():
        figures[f"idle with them: {role}, % of a core"] = round(100 * share, 2)
    calm = sum(shares.values()) < CALM_CORE_SHARE
    fleet.verdict.expect(calm, f"{sum(shares.values()):.1%} of a core is used while nobody calls")
    fleet.note_memory("idle with them", fleet.count())
    fleet.verdict.expect(await fleet.platform.healthy(), "the platform is not healthy")
    began = time.monotonic()
    listed = await fleet.place.laptop.bentoml("deployment", "list")
    figures["`bentoml deployment list`, s"] = time.monotonic() - began
    fleet.verdict.expect(
        all(name in listed for name in names), "the list does not name all of them"
    )
    began = time.monotonic()
    await call(f"{await fleet.platform.url_of(names[-1])}/cook")
    figures["waking the last one, s"] = time.monotonic() - began
    await _delete(fleet, names)


async def _store(fleet: Fleet, names: list[str]) -> None:
    """Writes rolled-out copies of the first deployment into the store of a stopped platform."""
    platform = fleet.platform
    fleet.verdict.expect(await platform.stop() == 0, "`hotplate up` did not end well")
    ports = itertools.count(platform.port + 2)
    store = Store(Database(f"sqlite:///{platform.data / 'hotplate.db'}"), lambda _: next(ports))
    like = next(d for d in store.deployments.all() if d.name == "first")
    for name in names:
        made = store.deployments.create(
            like.creator, name, RevisionDraft(like.latest.bento.id, like.latest.config)
        )
        store.revisions.conclude_rollout(
            made.latest.id, RolloutOutcome.READY, "", "revision 1: it answers"
        )
    store.close()
    began = time.monotonic()
    await platform.start()
    fleet.verdict.figures["starting with them, s"] = time.monotonic() - began


async def _alive(fleet: Fleet, count: int) -> None:
    names = [f"alive-{number:03d}" for number in range(count)]
    await _make(fleet, names, AWAKE)
    urls = [await fleet.platform.url_of(name) for name in names]
    began = time.monotonic()
    answers = await asyncio.gather(*(call(f"{url}/cook") for url in urls))
    fleet.verdict.figures["alive at once"] = len({answer["pid"] for answer in answers})
    fleet.verdict.figures["all of them answer in, s"] = time.monotonic() - began
    different = len({answer["pid"] for answer in answers}) == count
    fleet.verdict.expect(different, "not every deployment alive has a replica of its own")
    fleet.note_memory("with them alive", fleet.count())
    await _delete(fleet, names)


async def _make(fleet: Fleet, names: list[str], scaling: Mapping[str, object]) -> None:
    """Deploys all of them with the same bento, a few at a time, until each is ready."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with slots:
            await fleet.place.rough.deploy(
                name, fleet.place.bento.tag, Kitchen=service_settings(**scaling)
            )
            await _is_ready(fleet, name)

    await asyncio.gather(*(one(name) for name in names))


async def _is_ready(fleet: Fleet, name: str) -> None:
    async def settled() -> bool:
        page = await fleet.platform.ask(name)
        if page["status"] == "failed":
            raise Refused(f"{name}: {page['reason']}")
        return page["status"] in ("running", "scaled-to-zero")

    await until(settled, MADE_S)


async def _delete(fleet: Fleet, names: list[str]) -> None:
    await asyncio.gather(*(fleet.platform.delete(name) for name in names))
