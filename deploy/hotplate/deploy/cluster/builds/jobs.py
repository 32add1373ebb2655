"""Has builds done by Jobs: makes them, follows them and what they print, removes what has ended.

The Job's name is the lock: there is one build of a digest at a time, whoever began it. A control
plane that starts anew finds the Job of the last one and follows that. What was killed is begun
anew; so is what somebody has deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.builds import objects
from hotplate.deploy.cluster.builds.kept_logs import KeptLog, KeptLogs
from hotplate.deploy.cluster.builds.spec import (
    BuildEnd,
    BuildJobs,
    BuildOutcome,
    BuildSettings,
    JobBuild,
    namespace_of,
)
from hotplate.deploy.cluster.builds.state import JobState, state_of
from hotplate.deploy.cluster.kinds import EVENT, JOB, POD, Ref, ref_of
from hotplate.deploy.cluster.mirror import Mirror
from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.cluster.pods import told_of
from hotplate.deploy.errors import ClusterRefused, DeployError
from hotplate.deploy.process.backoff import Backoff, BackoffSettings
from hotplate.machine.background import BackgroundTasks

CONTROLLER = "batch.kubernetes.io/controller-uid"
"""The label of a pod that says which Job's it is."""
OURS = {"labelSelector": f"{names.MANAGED_BY}={names.PRODUCT},{names.ROLE}=build"}
WARNINGS = {"fieldSelector": "type=Warning"}
CONFLICT, NOT_THERE = 409, 404
FOLLOW_AGAIN_S = 0.5

log = logging.getLogger(__name__)

Tell = Callable[[str], None]


class ClusterBuildJobs(BuildJobs):
    """Those of one cluster; lives on one event loop."""

    def __init__(self, api: ClusterApi, settings: BuildSettings, logs: Path) -> None:
        """`logs` is a folder of this process alone, for what builds print."""
        self._api, self._settings = api, settings
        self._logs = KeptLogs(logs)
        self._has_changed = asyncio.Event()
        namespace = namespace_of(settings.release)
        self._jobs = Mirror(api, JOB, namespace, OURS, self._changed)
        self._pods = Mirror(api, POD, namespace, OURS, self._changed)
        self._told = Mirror(api, EVENT, namespace, WARNINGS, self._changed)
        self._over: set[str] = set()
        """Uids of Jobs that have ended and were told of: what is left of them goes."""

    async def run(self) -> None:
        """Follows what the cluster has of builds, until cancelled; without it nothing is built."""
        mirrors = {"jobs": self._jobs, "pods": self._pods, "events": self._told}
        async with asyncio.TaskGroup() as group:
            for kind, mirror in mirrors.items():
                group.create_task(mirror.run(), name=f"{kind} of builds")

    def log(self, digest: str) -> Path:
        return self._logs.path(digest)

    async def build(self, wanted: JobBuild, tell: Tell) -> BuildOutcome:
        clock = asyncio.get_running_loop().time
        began_at = clock()
        with contextlib.closing(self._logs.begin(wanted.digest)) as printed:
            outcome = await self._until_not_killed(wanted, printed, tell)
        return replace(outcome, log=printed.tail(), took_s=clock() - began_at)

    async def _until_not_killed(
        self, wanted: JobBuild, printed: KeptLog, tell: Tell
    ) -> BuildOutcome:
        for mirror in (self._jobs, self._pods):
            await mirror.listed.wait()
        backoff = self._backoff()
        while True:
            outcome = await self._build_once(wanted, printed, tell)
            if outcome.end is not BuildEnd.KILLED:
                return outcome
            backoff, pause_s = backoff.failed(0.0)
            if backoff.failures >= self._settings.kills:
                sentence = f"The build was killed {backoff.failures} times. {outcome.sentence}"
                return BuildOutcome(BuildEnd.FAILED, sentence, retry=True)
            anew = f"{outcome.sentence} The build begins anew."
            tell(anew)
            printed.begin_anew(anew)
            await asyncio.sleep(pause_s)

    def _backoff(self) -> Backoff:
        return Backoff(
            BackoffSettings(self._settings.first_pause_s, self._settings.longest_pause_s)
        )

    async def _build_once(self, wanted: JobBuild, printed: KeptLog, tell: Tell) -> BuildOutcome:
        job = await self._job(wanted, tell)
        async with self._following(job, printed) as follow:
            outcome = await self._ended(wanted, follow, tell)
        await self._remove(job)
        if outcome.end is BuildEnd.KILLED:
            await self._pod_gone(job["metadata"]["uid"])
        return outcome

    async def _job(self, wanted: JobBuild, tell: Tell) -> Manifest:
        """The Job of the build, which is made unless there is one."""
        backoff = self._backoff()
        while True:
            found = self._there(wanted.name)
            try:
                if found is None:
                    found = await self._api.create(objects.job(wanted, self._settings))
                elif _is_ending(found) or found["metadata"]["uid"] in self._over:
                    await self._look_again()
                    continue
                uid = found["metadata"]["uid"]
                await self._api.apply(objects.secret(wanted, self._settings, uid))
                return found
            except DeployError as error:
                if isinstance(error, ClusterRefused) and error.status == CONFLICT:
                    await self._look_again()  # somebody was first, and we shall see it
                    continue
                tell(f"The cluster does not take the build: {error}")
            backoff, pause_s = backoff.failed(0.0)
            await asyncio.sleep(pause_s)

    async def _ended(self, wanted: JobBuild, follow: _Followed, tell: Tell) -> BuildOutcome:
        """Returns once it has, and all that it has printed is kept."""
        uid, shown = follow.uid, None
        while True:
            job = self._there(wanted.name)
            if job is None or job["metadata"]["uid"] != uid:
                if follow.seen or not await self._is_there(follow.ref, uid):
                    return BuildOutcome(BuildEnd.KILLED, "Its Job was deleted.")
            else:
                follow.seen = True
                state = self._state(job)
                if state.waits_for != shown:
                    shown = state.waits_for
                    tell(shown)
                pod = self._pod(uid)
                if state.prints and pod is not None:
                    follow.pod(ref_of(pod, POD.name))
                if state.outcome is not None:
                    await follow.all_of_it(self._settings.last_words_s)
                    return state.outcome
            await self._look_again()

    def _state(self, job: Manifest) -> JobState:
        pod = self._pod(job["metadata"]["uid"])
        told = told_of(self._told.objects.values())
        uids = [each["metadata"]["uid"] for each in (pod, job) if each is not None]
        events = [event for uid in uids for event in told.get(uid, ())]
        return state_of(job, pod, events, self._settings)

    def _there(self, name: str) -> Manifest | None:
        return self._jobs.objects.get(Ref(JOB.name, namespace_of(self._settings.release), name))

    def _pod(self, uid: str) -> Manifest | None:
        """The Job's, the last that was made."""
        own = [
            each
            for each in self._pods.objects.values()
            if (each["metadata"].get("labels") or {}).get(CONTROLLER) == uid
        ]
        return max(own, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    async def _pod_gone(self, uid: str) -> None:
        """Returns when nothing of a Job runs, or a node that is lost would have to say so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.last_words_s):
                while self._pod(uid) is not None:
                    await self._look_again()

    async def _is_there(self, ref: Ref, uid: str) -> bool:
        """Whether the cluster has that very object, which we have not seen yet."""
        try:
            found = await self._api.read(ref)
        except DeployError:
            return True  # we shall see
        return found is not None and found["metadata"]["uid"] == uid

    @contextlib.asynccontextmanager
    async def _following(self, job: Manifest, printed: KeptLog) -> AsyncIterator[_Followed]:
        followed = _Followed(self._api, ref_of(job, JOB.name), job["metadata"]["uid"], printed)
        try:
            yield followed
        finally:
            await followed.tasks.cancel()

    async def _remove(self, job: Manifest) -> None:
        """Its pod and its Secret go with it."""
        ref, uid = ref_of(job, JOB.name), job["metadata"]["uid"]
        self._over = {*self._uids(), uid} & {*self._over, uid}
        with contextlib.suppress(DeployError):  # then the cluster removes it in an hour
            await self._api.delete(ref, uid)

    def _uids(self) -> set[str]:
        return {each["metadata"]["uid"] for each in self._jobs.objects.values()}

    async def _look_again(self) -> None:
        """Returns when something has changed, or after a while."""
        changed = self._has_changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.look_s):
                await changed.wait()

    def _changed(self) -> None:
        self._has_changed.set()
        self._has_changed = asyncio.Event()


@dataclass
class _Followed:
    """A Job's pod, and its log on the way into a file."""

    api: ClusterApi
    ref: Ref
    uid: str
    printed: KeptLog
    seen: bool = False
    """Whether the Job was among those that are followed."""
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    _named: str = ""

    def pod(self, pod: Ref) -> None:
        """Begin to follow it, unless we do."""
        if pod.name != self._named:
            self._named = pod.name
            self.tasks.start(self._follow(pod), name=f"log of {pod.name}")

    async def all_of_it(self, timeout_s: float) -> None:
        """Returns when all is kept that its pod has printed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.tasks.finish()

    async def _follow(self, pod: Ref) -> None:
        """Until its container has ended, or its pod is gone."""
        while True:
            try:
                come = self.api.printed(pod, objects.CONTAINER, self.printed.since)
                async with contextlib.aclosing(come):
                    async for at, line in come:
                        self.printed.add(at, line)
                self._named = ""  # it was perhaps cut off: whoever sees that it goes on asks again
                return
            except DeployError as error:
                if isinstance(error, ClusterRefused) and error.status == NOT_THERE:
                    return
                log.debug("log of build %s: %s", pod.name, error)
            await asyncio.sleep(FOLLOW_AGAIN_S)


def _is_ending(job: Manifest) -> bool:
    return "deletionTimestamp" in job["metadata"]
