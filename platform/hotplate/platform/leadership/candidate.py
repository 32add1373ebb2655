"""One of the control planes on a database: it acts, or waits until it may.

Of the folder: `election` says who may act when (pure), `watchdog` ends what this process does when
its term is over, however it was stopped, and `seat` has the next one wait for that. What the one
that acts writes is fenced by `store/database.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar
from uuid import uuid4

from hotplate.deploy.process.procfs import is_running, start_time_of
from hotplate.platform.errors import CannotStart, StoreFailed
from hotplate.platform.leadership.election import LOOK_S, RENEW_S, TERM_S, Tenure, Watch
from hotplate.platform.leadership.watchdog import Watchdog
from hotplate.platform.store.leadership import Leadership
from hotplate.platform.store.records import Term

P = ParamSpec("P")
T = TypeVar("T")

RETRY_S = 0.5
"""After a renewal that failed."""

log = logging.getLogger("hotplate.leadership")


class Candidate:
    """`elected` comes first, then `keep`, and `give_up` at the end."""

    def __init__(self, leadership: Leadership, mine: Term, lost: Callable[[str], NoReturn]) -> None:
        """In a running loop. `mine` says who this is; `lost` ends all that this process does, and
        gets the reason."""
        self._leadership = leadership
        self._mine = mine
        self._lost: Callable[[str], NoReturn] = lost
        self._watchdog = Watchdog(asyncio.get_running_loop().time, self._rung)
        # Not the store's thread: a long transaction there must not end the term.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leadership")
        self._watch: Watch | None = None
        self._tenure: Tenure | None = None
        self._away = False
        """Whether the database has failed the last time."""

    @property
    def seen(self) -> Term:
        """The term as one that waits has seen it last."""
        return self._watch.term if self._watch else Term()

    @property
    def acts(self) -> bool:
        return self._tenure is not None

    @property
    def leader(self) -> str:
        """The URL of the one that acts, for one that waits; empty = none does now."""
        term = self.seen
        return term.url if term.holder and not self.acts else ""

    @property
    def epoch(self) -> int:
        """The last one that it knows."""
        return self.seen.epoch if self._tenure is None else self._tenure.epoch

    async def look(self) -> int | None:
        """Take the term, if nobody can be acting: its epoch. None = this one waits. Raises
        CannotStart where the one that acts has other replicas, StoreFailed."""
        now = asyncio.get_running_loop().time
        before = self._watch
        term = await self._run(self._leadership.look, waits=before is not None)
        seen = Watch(term, now()) if before is None else before.after(term, now())
        self._watch = seen
        if seen.renewed and term.holder and term.place != self._mine.place:
            raise CannotStart(
                f"another control plane acts on this database, at {term.url} with the replicas of "
                f"{term.place}; they are processes of its machine: start this one there, on the "
                "same data directory, or stop that one"
            )
        if not seen.may_take(now(), self._runs(term)):
            return None
        asked_at = now()
        epoch = await self._run(self._leadership.take, term, self._mine, TERM_S)
        if epoch is not None:
            self._hold(Tenure.begun(epoch, asked_at, term.rival_s))
        return epoch

    async def elected(self) -> int:
        """Returns when this one acts: the epoch. Raises CannotStart."""
        while True:
            try:
                if (epoch := await self.look()) is not None:
                    return epoch
                self._away = False
            except StoreFailed as error:
                self._say_away(error)
            await asyncio.sleep(LOOK_S)

    async def keep(self) -> None:
        """Renew the term until cancelled; where it is lost, so is all that this process does."""
        assert self._tenure is not None, "it was elected"
        epoch = self._tenure.epoch
        now = asyncio.get_running_loop().time
        pause_s = RENEW_S
        while True:
            await asyncio.sleep(pause_s)
            asked_at = now()
            try:
                term = await self._run(self._leadership.renew, epoch, TERM_S)
            except StoreFailed as error:
                self._say_away(error)
                pause_s = RETRY_S
                continue
            if term is None:
                self._lost("another control plane acts")
            self._hold(Tenure.begun(epoch, asked_at, term.rival_s))
            self._away, pause_s = False, RENEW_S

    async def give_up(self) -> None:
        """Let another one act at once, and look no more."""
        self._watchdog.rest()
        if self._tenure is not None:
            try:
                await self._run(self._leadership.give_up, self._tenure.epoch)
            except StoreFailed as error:
                log.warning("the term is over in %.0f s only: %s", TERM_S, error)
        self._thread.shutdown()

    def _hold(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._watchdog.bark_at(tenure.until)

    def _rung(self, now: float) -> None:
        """The term may be over."""
        assert self._tenure is not None, "the watchdog watches a term"
        tenure = self._tenure.rung(now)
        if tenure is None:
            self._lost("it was stopped or cut off for longer than its term")
        self._hold(tenure)

    def _runs(self, term: Term) -> bool | None:
        """Whether the process that has the term does; None = it is not of this machine."""
        if term.place != self._mine.place or not term.process:
            return None
        if term.process == self._mine.process:
            return False  # this one, before it began anew
        pid, _, start_time = term.process.partition(" ")
        return is_running(int(pid), start_time)

    def _say_away(self, error: StoreFailed) -> None:
        if not self._away:
            log.warning("who acts cannot be read or kept now: %s", error)
        self._away = True

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(call, *args, **kwargs))


def this_process(url: str, data: Path) -> Term:
    """Who this process is: reached at `url`, with the replicas of the data directory."""
    pid = os.getpid()
    start_time = start_time_of(pid)
    boot = start_time.partition("@")[2]
    # Processes of another container may have the same ids on the same boot.
    namespace = os.readlink("/proc/self/ns/pid").partition(":")[2].strip("[]")
    return Term(
        holder=uuid4().hex,
        url=url,
        process=f"{pid} {start_time}",
        place=f"{data} on machine {boot}, process namespace {namespace}",
    )
