"""Carries out a load test: starts the load maker, follows what it writes, watches the platform."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from hotplate.deploy.process.printable import printable
from hotplate.platform.errors import CannotStart, Conflict
from hotplate.platform.loadtest import plan as plan_file
from hotplate.platform.loadtest.asking.target import Ask
from hotplate.platform.loadtest.live.figures import ALIKE, RunningFigures
from hotplate.platform.loadtest.live.progress import ProgressDisplay
from hotplate.platform.loadtest.live.watch import PlatformWatch
from hotplate.platform.loadtest.load_maker import LoadMaker
from hotplate.platform.loadtest.observation import ObservedRun
from hotplate.platform.loadtest.plan import COMPLAINTS, SAMPLES, LoadPlan
from hotplate.platform.loadtest.samples import NO_ANSWER, RECORD, REFUSALS, RequestSample, read

LOOK_S = 0.5
"""Between two looks at what the processes have written."""
LEAD_S = 0.5
"""How long before second 0 the processes, which are ready, are told when it is,"""
READ_PER_S = 5e6
"""and for as many arrivals a second longer."""
START_S = 60.0
"""How long the processes may take until they are ready."""
READY_LOOK_S = 0.05
GRACE_S = 10.0
"""How long requests may go on when the load test is ended early."""
LAST_S = 30.0
"""How much longer than their time limit the last requests are waited for."""
LEAST_FREE_BYTES = 64 << 10
WORDS = 500
"""Characters of a service's own words in a sentence."""
STOPPING = (signal.SIGINT, signal.SIGTERM)
REMEDIES = {
    400: "give it what it takes with --payload",
    401: "name a file with a token by --endpoint-token-file",
    403: "name a file with a token by --endpoint-token-file",
    404: "give one of its methods with --route",
    405: "give one of its methods with --route",
    413: "give it less with --payload",
    415: "give it what it takes with --payload",
    422: "give it what it takes with --payload",
}
"""What to do about a service that answers nothing else."""


@dataclass(frozen=True)
class CarriedOut:
    """A load test that has been, as far as it went."""

    plan: LoadPlan
    ended_at_s: float
    """When the last answer had come, or a signal; seconds since second 0."""
    observed: ObservedRun
    stopped_by: signal.Signals | None
    """The signal that ended it early."""
    complaint: str
    """With which status a request failed, and the service's own words; empty if none did."""


@dataclass(frozen=True)
class LoadTest:
    """What is to be carried out, in an empty folder of its own."""

    plan: LoadPlan
    due_s: Sequence[float]
    """When requests are due; of a closed loop, when users begin."""
    payloads: Sequence[bytes]
    folder: Path
    token: str = field(default="", repr=False)
    """What callers of the deployment send; empty = nothing."""
    watched: tuple[Ask, str] | None = None
    """How to ask the platform, and for which deployment."""

    async def carry_out(self, display: ProgressDisplay) -> CarriedOut:
        """Write the plan with its second 0, and see it through, or to SIGINT or SIGTERM.

        Raises CannotStart where the load maker does not work, Conflict where the service refuses
        whatever it is sent, and OSError.
        """
        loop = asyncio.get_running_loop()
        maker = LoadMaker(self.folder, self.plan)
        with _stopping() as stopped:
            maker.start()
            try:
                display.show_start()
                await _ready(maker, stopped)
                lead_s = LEAD_S + len(self.due_s) / READ_PER_S
                plan = replace(self.plan, started_at=datetime.now(UTC).timestamp() + lead_s)
                second_0 = loop.time() + lead_s

                def clock() -> float:
                    return loop.time() - second_0

                plan_file.write(self.folder, plan, self.due_s, self.payloads, self.token)
                watch = PlatformWatch(*self.watched, clock) if self.watched else None
                if watch is not None:
                    watch.start()
                figures = await self._followed(maker, watch, display, clock, stopped)
                ended_at_s = max(clock(), 0.0)
            finally:
                await asyncio.to_thread(maker.stop, GRACE_S)
            observed = ObservedRun()
            if watch is not None:
                observed = await asyncio.to_thread(watch.stop, plan.started_at)
        if figures.alike is not None:
            raise Conflict(self._refusal(figures.alike))
        by = stopped.result() if stopped.done() else None
        has_sent_all = not plan.users and figures.ended >= len(self.due_s)
        if by is None and ended_at_s < plan.duration_s and not has_sent_all:
            words = printable(maker.last_words).strip() or self._silence()
            raise CannotStart(
                f"the load maker has ended by itself after {ended_at_s:.0f} s: {words}"
            )
        if by is None:  # all may be answered long before the end of a slow test
            ended_at_s = max(ended_at_s, plan.duration_s)
        return CarriedOut(plan, ended_at_s, observed, by, self._complaint())

    async def _followed(
        self,
        maker: LoadMaker,
        watch: PlatformWatch | None,
        display: ProgressDisplay,
        clock: Callable[[], float],
        stopped: asyncio.Future[signal.Signals],
    ) -> RunningFigures:
        """Until all processes have ended, a signal comes, or nothing but failures does."""
        figures = RunningFigures(() if self.plan.users else self.due_s)
        follower = SampleFollower(self.folder, self.plan.processes)
        last_s = self.plan.duration_s + self.plan.timeout_s + LAST_S
        running = True
        while running and not stopped.done() and clock() < last_s:
            await asyncio.wait({stopped}, timeout=LOOK_S)
            running = maker.running()
            figures.add(follower.fresh())
            asking_s = min(clock(), self.plan.duration_s)
            display.show(clock(), figures.at(asking_s), watch.latest if watch else None)
            if figures.alike is not None:
                break
        return figures

    def _silence(self) -> str:
        """Why there may be no last words: they are written on the same disk as the samples."""
        if shutil.disk_usage(self.folder).free < LEAST_FREE_BYTES:
            return f"the disk of {self.folder.parent} is full; name another folder in TMPDIR"
        return "it says nothing"

    def _refusal(self, status: int) -> str:
        route, many = self.plan.route, f"the first {ALIKE} requests"
        words = self._words(status)
        if status == NO_ANSWER:
            return f"{self.plan.url}{route} gave {many} no answer{words or ': does it still run?'}"
        hint = REMEDIES.get(status, "see what the service logs")
        if 300 <= status < 400:
            hint = "a load test follows no redirect: give the address that is meant"
        return f"{route} answered {many} with {status}{words}; {hint}"

    def _words(self, status: int) -> str:
        """What the service said with that status, behind a colon."""
        return next((f": {words}" for of, words in self._said() if of == status), "")

    def _complaint(self) -> str:
        failed = (
            f"{of or 'no answer'}: {words}" for of, words in self._said() if of not in REFUSALS
        )
        return next(failed, "")

    def _said(self) -> Iterator[tuple[int, str]]:
        """Statuses of requests that were not answered, and the words with them."""
        for number in range(self.plan.processes):
            path = self.folder / COMPLAINTS.format(number)
            for line in path.read_text().split("\n") if path.exists() else ():
                with suppress(ValueError):  # half written
                    said = json.loads(line)
                    if words := " ".join(printable(said["text"]).split()):
                        yield said["status"], words[:WORDS]


async def _ready(maker: LoadMaker, stopped: asyncio.Future[signal.Signals]) -> None:
    """Until the load maker is ready, has failed, or a signal comes. Raises CannotStart."""
    try:
        async with asyncio.timeout(START_S):
            while maker.running() and not maker.ready and not stopped.done():
                await asyncio.wait({stopped}, timeout=READY_LOOK_S)
    except TimeoutError:
        raise CannotStart(
            f"the load maker's processes were not ready after {START_S:.0f} s; start fewer of them "
            "with --processes, or ask from a machine that is less busy"
        ) from None


class SampleFollower:
    """Reads what the processes have written since the last look."""

    def __init__(self, folder: Path, processes: int) -> None:
        self._offsets = {folder / SAMPLES.format(number): 0 for number in range(processes)}

    def fresh(self) -> Iterator[RequestSample]:
        for path in self._offsets:
            if path.exists():
                for sample in read(path, self._offsets[path]):
                    self._offsets[path] += RECORD.size
                    yield sample


@contextmanager
def _stopping() -> Iterator[asyncio.Future[signal.Signals]]:
    """Is done when a person, or whatever started us, wants the load test to end."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(by: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(by)

    for each in STOPPING:
        loop.add_signal_handler(each, stop, each)
    try:
        yield stopped
    finally:
        for each in STOPPING:
            loop.remove_signal_handler(each)
