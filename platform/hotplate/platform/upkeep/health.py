"""Whether the parts of the platform do their work: looked at every few seconds.

A part that is short is on the platform's page at once; one that is short at two looks in a row is
an event, and so is its recovery. What parts have refused is an event each. The supervisor reports a
part that dies and is back in between.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERY_S = 3.0
"""Often enough for a person, and too seldom to be seen in an idle platform's CPU time."""

log = logging.getLogger("hotplate.health")


@dataclass(frozen=True)
class Check:
    """One part, and the kinds of event about it."""

    name: str
    lost: str
    back: str
    why_not: Callable[[], Awaitable[str]]
    """One sentence with what to do; "" while all is well."""


@dataclass(frozen=True)
class PartRefusals:
    """What parts have refused lately, and the kind of event that each of it is."""

    kind: str
    sentences: Callable[[], Awaitable[Sequence[str]]]


@dataclass(frozen=True)
class Trouble:
    """A part that does not do its work."""

    since: float
    sentence: str
    reported: bool = False
    """Whether it has become an event."""


@dataclass(frozen=True)
class HealthChange:
    """The result of one look at one check."""

    trouble: Trouble | None
    kind: str = ""
    message: str = ""


def change_of(check: Check, before: Trouble | None, why_not: str, now: float) -> HealthChange:
    """The change after a look that found `why_not`, given the trouble before; `now` in seconds."""
    if not why_not:
        if before is None or not before.reported:
            return HealthChange(None)
        lasted_s = now - before.since
        return HealthChange(None, check.back, f"{check.name} works again, after {lasted_s:.0f} s")
    if before is None:
        return HealthChange(Trouble(now, why_not))
    if before.reported:
        return HealthChange(Trouble(before.since, why_not, reported=True))
    return HealthChange(Trouble(before.since, why_not, reported=True), check.lost, why_not)


class HealthMonitor:
    """Looks at every check for ever."""

    def __init__(
        self,
        checks: Sequence[Check],
        tell: Callable[[str, str], None],
        refusals: Sequence[PartRefusals] = (),
    ) -> None:
        """`tell` gets each event: its kind and a sentence."""
        self._checks = checks
        self._tell = tell
        self._refusals = refusals
        self._told: dict[str, frozenset[str]] = {}
        self._troubles: dict[str, Trouble] = {}

    @property
    def short(self) -> list[str]:
        """A sentence for each part that does not do its work now."""
        return [trouble.sentence for trouble in self._troubles.values()]

    def failing(self) -> dict[str, bool]:
        """By check, whether it fails now."""
        return {
            each.name.removeprefix("the "): each.name in self._troubles for each in self._checks
        }

    async def run(self) -> None:
        while True:
            await self.look(asyncio.get_running_loop().time())
            await asyncio.sleep(EVERY_S)

    async def look(self, now: float) -> None:
        """Ask every check once."""
        for check in self._checks:
            try:
                why_not = await check.why_not()
            except Exception:  # a check with a bug must cost no other check
                log.exception("%s could not be checked", check.name)
                continue
            change = change_of(check, self._troubles.get(check.name), why_not, now)
            if change.trouble is None:
                self._troubles.pop(check.name, None)
            else:
                self._troubles[check.name] = change.trouble
            if change.kind:
                self._tell(change.kind, change.message)
        for refusals in self._refusals:
            await self._tell_new(refusals)

    async def _tell_new(self, refusals: PartRefusals) -> None:
        try:
            said = await refusals.sentences()
        except Exception:  # a bug there must cost no check
            log.exception("what is told as %s could not be asked for", refusals.kind)
            return
        before = self._told.get(refusals.kind, frozenset())
        for sentence in said:
            if sentence not in before:
                self._tell(refusals.kind, sentence)
        self._told[refusals.kind] = frozenset(said)


def disks_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The file systems that hold these folders, each once: `path`, `free_bytes`, `total_bytes`."""
    disks: Mapping[int, dict[str, Any]] = {
        folder.stat().st_dev: _disk(folder) for folder in reversed(folders)
    }
    return list(disks.values())


def _disk(folder: Path) -> dict[str, Any]:
    about = os.statvfs(folder)
    return {
        "path": str(folder),
        "free_bytes": about.f_bavail * about.f_frsize,
        "total_bytes": about.f_blocks * about.f_frsize,
    }
