"""Follows what all deployments do, step by step, and has it written once a minute.

The controller says what it sees, `look` for a deployment and `counted` for what a gateway has
counted; the rest goes by the clock. Where everything sleeps nothing is done, and nothing written.
Everything is for the event loop's thread, but for what is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hotplate.deploy.engine import ReplicaUsage
from hotplate.deploy.phases import unix_now
from hotplate.platform.errors import StoreFailed
from hotplate.platform.series.levels import FINE
from hotplate.platform.series.points import USES, Point, together
from hotplate.platform.series.track import Seen, Track
from hotplate.platform.series.writing import SeriesWriter, Unwritten, consumed, hour_of
from hotplate.platform.store.costs import Consumed, Key
from hotplate.platform.store.parts import Store
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.routes import TASKS

WRITE_S = 60
UNWRITTEN_POINTS = 200_000
"""About 40 MB: more than that is not kept for a database that takes nothing."""

log = logging.getLogger("hotplate.series")


@dataclass(frozen=True)
class Subject:
    """Whose series it is."""

    deployment_id: int
    organization_id: int
    organization: str
    name: str
    """The deployment's, also of a version of its canary."""
    route: str
    """The name of its public route."""


UsageSource = Callable[[], Awaitable[Mapping[str, ReplicaUsage]]]
"""What each replica has used so far, by its id."""
StandbySource = Callable[[], Mapping[int, float]]
"""How many GPUs the standbys of organizations have, by the organizations' ids."""


async def nothing_known() -> Mapping[str, ReplicaUsage]:
    """Where nobody can read it."""
    return {}


class SeriesRecorder:
    """Of all deployments."""

    def __init__(
        self,
        store: Store,
        usage: UsageSource = nothing_known,
        standbys: StandbySource = lambda: {},
        wall: Callable[[], float] = unix_now,
    ) -> None:
        self._store = store
        self._usage = usage
        self._standbys = standbys
        self._writer = SeriesWriter(store)
        self._wall = wall
        self._began_at = wall()
        self._opened_at: float | None = None
        """When the step began that goes on, loop seconds; None = none has."""
        self._tracks: dict[int, Track] = {}
        self._subjects: dict[int, Subject] = {}
        self._by_route: dict[str, int] = {}
        self._early: dict[str, RouteCounts] | None = {}
        """What was counted, by route, before anything was known of it; None = all are known."""
        self._awake: set[int] = set()
        self._unwritten = Unwritten()
        self._writing = Unwritten()
        """What a transaction that goes on has."""
        self._points = 0
        self._stirred = asyncio.Event()

    # What the controller says

    def look(
        self,
        subject: Subject,
        replicas: Iterable[Seen],
        wanted: int,
        in_flight: int,
        queued: int,
    ) -> None:
        """So it is from now on."""
        now = asyncio.get_running_loop().time()
        track = self._track(subject, now)
        if self._early and (early := self._early.pop(subject.route, None)) is not None:
            track.count(early, now, is_entry=True)
        track.look(replicas, wanted, in_flight, queued, now)
        self._follow(subject.deployment_id, track)

    def counted(self, counts: Mapping[str, RouteCounts]) -> None:
        """What a gateway has counted, by route, since it said so last."""
        now = asyncio.get_running_loop().time()
        for route, of_route in counts.items():
            name, _, service = route.partition("@")
            if (deployment_id := self._by_route.get(name)) is not None:
                track = self._woken(self._tracks[deployment_id], now)
                is_entry = not service or service == TASKS[1:]
                track.count(of_route, now, is_entry=is_entry)
                self._follow(deployment_id, track)
            elif not service and self._early is not None:
                self._early.setdefault(name, of_route)

    def all_are_known(self) -> None:
        """Each deployment that a gateway serves has been looked at since this process began: what
        is counted of others is of those that are gone."""
        self._early = None

    def forget(self, deployment_id: int) -> None:
        """It is gone, and nothing is kept of it but what it took."""
        track = self._tracks.get(deployment_id)
        if track is not None and track.is_awake:
            self._close(deployment_id, track, self._step_at(), asyncio.get_running_loop().time())
        self._tracks.pop(deployment_id, None)
        self._awake.discard(deployment_id)
        self._unwritten.forget(deployment_id)
        subject = self._subjects.pop(deployment_id, None)
        if subject is not None and self._by_route.get(subject.route) == deployment_id:
            del self._by_route[subject.route]

    # What others ask

    def unwritten(self, deployment_id: int) -> list[tuple[int, Point]]:
        """The points that may not be in the store yet, with what there is of the step that goes
        on; in order of time."""
        points = [
            *self._writing.deployments.get(deployment_id, ()),
            *self._unwritten.deployments.get(deployment_id, ()),
        ]
        track = self._tracks.get(deployment_id)
        point = None if track is None else track.so_far(asyncio.get_running_loop().time())
        return points if point is None else [*points, (self._step_at(), point)]

    def unwritten_of(self, organization_id: int) -> list[tuple[int, Point]]:
        """The same of all deployments of an organization together."""
        now = asyncio.get_running_loop().time()
        points = [
            *self._writing.organizations.get(organization_id, ()),
            *self._unwritten.organizations.get(organization_id, ()),
        ]
        open_ones = [
            point
            for deployment_id in self._awake
            if self._subjects[deployment_id].organization_id == organization_id
            and (point := self._tracks[deployment_id].so_far(now)) is not None
        ]
        if not open_ones:
            return points
        at = self._step_at()
        while points and points[-1][0] == at:  # of what has gone in the step that goes on
            open_ones.append(points.pop()[1])
        return [*points, (at, together(open_ones))]

    def costs(self, organizations: Collection[int]) -> Iterator[tuple[Key, Consumed]]:
        """What may not be in the store yet of what these took, up to now."""
        for unwritten in (self._writing, self._unwritten):
            for key, taken in unwritten.costs.items():
                if key[0] in organizations:
                    yield key, taken
        now, at = asyncio.get_running_loop().time(), self._step_at()
        for deployment_id in self._awake:
            subject = self._subjects[deployment_id]
            point = self._tracks[deployment_id].so_far(now)
            if subject.organization_id in organizations and point is not None:
                yield (subject.organization_id, subject.name, hour_of(at)), consumed(point)

    def rates(self, deployment_ids: Iterable[int]) -> dict[str, float]:
        """`requests_per_s` and `errors_per_s` of the last 10 s, of all of these together."""
        now = asyncio.get_running_loop().time()
        found = [self._tracks[each].rates(now) for each in deployment_ids if each in self._tracks]
        return {
            "requests_per_s": round(sum(requests for requests, _ in found), 3),
            "errors_per_s": round(sum(errors for _, errors in found), 3),
        }

    def gpus(self) -> dict[str, float]:
        """How many are `busy`, `idle`, `starting` and `standby` now."""
        found = dict.fromkeys(USES, 0.0) | {"standby": sum(self._standbys().values())}
        for deployment_id in self._awake:
            for use, number in self._tracks[deployment_id].gpus().items():
                found[use] += number
        return found

    def gpu_s(self) -> Mapping[tuple[str, str, str, str], float]:
        """GPU-seconds of the deployments that there are, by organization, deployment, service and
        use, since this process began."""
        found: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
        for deployment_id, track in self._tracks.items():
            subject = self._subjects[deployment_id]
            for (service, use), seconds in track.gpu_s.items():
                found[subject.organization, subject.name, service, use] += seconds
        return found

    # The clock

    async def run(self) -> None:
        """Ends steps and has them written until cancelled; then what is left is written."""
        self._opened_at = asyncio.get_running_loop().time()
        try:
            while True:
                if not self._awake and not self._unwritten:
                    await self._wait_for_any()
                await asyncio.sleep(FINE.step_s - self._wall() % FINE.step_s)
                await self.end_step()
                if self._unwritten and int(self._wall()) % WRITE_S < FINE.step_s:
                    await self.flush()
        finally:
            self._close_steps(self._step_at())
            await asyncio.shield(self.flush())

    async def _wait_for_any(self) -> None:
        self._stirred.clear()
        if not self._standbys():
            await self._stirred.wait()
            self._opened_at = asyncio.get_running_loop().time()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITE_S):
                await self._stirred.wait()

    async def end_step(self) -> None:
        """The step that goes on ends now."""
        usage: Mapping[str, ReplicaUsage] = {}
        try:
            usage = await self._usage() if self._awake else {}
        except OSError as error:
            log.warning("what replicas use cannot be read: %s", error)
        for deployment_id in self._awake:
            self._tracks[deployment_id].use(usage)
        # A moment ago: the step that has ended is the one before this one.
        self._close_steps(int(self._wall() - FINE.step_s / 2))

    def _close_steps(self, at: int) -> None:
        at -= at % FINE.step_s
        now = asyncio.get_running_loop().time()
        lasted_s = 0.0 if self._opened_at is None else now - self._opened_at
        self._opened_at = now
        for deployment_id in sorted(self._awake):
            track, subject = self._tracks[deployment_id], self._subjects[deployment_id]
            point = track.close(now)
            if point is not None and self._points < UNWRITTEN_POINTS:
                self._points += 1
                self._unwritten.add(at, deployment_id, subject.organization_id, subject.name, point)
            if not track.is_awake:
                self._awake.discard(deployment_id)
        for organization_id, gpus in self._standbys().items():
            more = Consumed(standby_gpu_s=gpus * lasted_s)
            self._unwritten.take(at, organization_id, "", more)

    def _close(self, deployment_id: int, track: Track, at: int, now: float) -> None:
        point, subject = track.close(now), self._subjects[deployment_id]
        if point is not None and self._points < UNWRITTEN_POINTS:
            self._points += 1
            self._unwritten.add(at, deployment_id, subject.organization_id, subject.name, point)

    async def flush(self) -> None:
        """Have what has ended written. What the database does not take waits for the next time."""
        if self._writing or not self._unwritten:
            return
        self._writing, self._unwritten = self._unwritten, Unwritten()
        count, self._points = self._points, 0
        try:
            await self._store.run(self._writer.write, self._writing, self._wall())
        except StoreFailed as error:
            log.warning("series wait until the database takes them: %s", error)
            self._points += count
            self._writing.extend(self._unwritten)
            self._unwritten = self._writing
        except Exception:  # it would fail each time, and nobody else is to be held up by it
            log.exception("a minute of series cannot be written and is lost")
        finally:
            self._writing = Unwritten()

    def _track(self, subject: Subject, now: float) -> Track:
        track = self._tracks.get(subject.deployment_id)
        if track is None:
            track = self._tracks[subject.deployment_id] = Track(self._began_at, now)
            self._by_route[subject.route] = subject.deployment_id
        self._subjects[subject.deployment_id] = subject
        return self._woken(track, now)

    def _woken(self, track: Track, now: float) -> Track:
        if not track.is_awake:
            # It slept since the step began, if anybody looked then.
            since_s = min(self._wall() % FINE.step_s, self._wall() - self._began_at)
            track.wake(now - max(0.0, since_s))
        return track

    def _follow(self, deployment_id: int, track: Track) -> None:
        if track.is_awake and deployment_id not in self._awake:
            self._awake.add(deployment_id)
            self._stirred.set()

    def _step_at(self) -> int:
        now = int(self._wall())
        return now - now % FINE.step_s
