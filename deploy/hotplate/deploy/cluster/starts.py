"""The starts of pods, as far as the cluster does not tell of them: for how long each has been on
its way by our own clock, when it was ready first, and what its program reports of it.

A report is asked for once a pod is ready, and again a few times where nothing comes. Whoever wrote
the bento has written what answers: it is bounded in size and time, and believed by the runtime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import aiohttp

from hotplate.deploy.cluster.pod_spec import PodReport, PodRuntime
from hotplate.deploy.cluster.pod_times import PodTimes
from hotplate.deploy.cluster.pods import late
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.phases import unix_now
from hotplate.deploy.workload import Workload
from hotplate.machine.background import BackgroundTasks

TIMEOUT_S = 5.0
PAUSES_S = (0.0, 1.0, 5.0, 30.0)
"""Before each attempt."""
AT_ONCE = 32
MOST_BYTES = 2 << 20

log = logging.getLogger(__name__)


@dataclass
class _Start:
    """Of one container of one pod."""

    restarts: int
    seen_at: float
    """When it was first seen on its node, by the loop's clock."""
    times: PodTimes | None = None
    """When each step of it was seen first, in Unix seconds."""
    ready_at: float | None = None
    report: PodReport | None = None
    is_asked: bool = False


class Starts:
    """Those of all pods that there are. Lives on one event loop."""

    def __init__(self, runtime: PodRuntime, changed: Callable[[], None]) -> None:
        self._runtime, self._changed = runtime, changed
        self._starts: dict[str, _Start] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks = BackgroundTasks()

    def heard(self, uid: str, restarts: int) -> PodReport | None:
        """What the program of a pod has said, which has started again so often: nothing where it
        has been asked in vain. None while it may say something."""
        if not self._runtime.report_path:
            return PodReport(())
        start = self._starts.get(uid)
        return start.report if start is not None and start.restarts == restarts else None

    def sharpened(self, uid: str, restarts: int, times: PodTimes) -> PodTimes:
        """The times of a pod, which has started again so often, by when they were seen first; it
        is ready since it was so first."""
        start = self._starts.get(uid)
        if start is None or start.restarts != restarts:
            start = _Start(restarts, asyncio.get_running_loop().time())
            self._starts[uid] = start
        start.times = times.seen(unix_now(), start.times)
        sharp = times.sharpened(start.times)
        if sharp.ready_at is None or start.ready_at is None:
            return sharp
        return replace(sharp, ready_at=start.ready_at)

    def follow(self, replicas: Iterable[Replica]) -> None:
        """These are all that there are."""
        now = asyncio.get_running_loop().time()
        kept: dict[str, _Start] = {}
        for replica in replicas:
            start = self._starts.get(replica.uid)
            if start is None or start.restarts != replica.restarts:
                start = _Start(replica.restarts, now)
            if not replica.node:
                start.seen_at = now
            if replica.state is ReplicaState.READY:
                start.ready_at = start.ready_at or replica.ready_at
                self._ask(replica, start)
            kept[replica.uid] = start
        self._starts = kept

    def known(self, replica: Replica, workload: Workload | None) -> Replica:
        """The same, or late; `workload` is None where it is not known now."""
        start = self._starts.get(replica.uid)
        waits = replica.state is ReplicaState.STARTING and not replica.restarts
        if start is None or workload is None or not waits:
            return replica
        limit_s = workload.cold_start_timeout_s
        if asyncio.get_running_loop().time() - start.seen_at <= limit_s:
            return replica
        reason = late(limit_s, replica.reason)
        return replace(replica, state=ReplicaState.BACKOFF, reason=reason)

    async def close(self) -> None:
        await self._tasks.cancel()

    def _ask(self, replica: Replica, start: _Start) -> None:
        if self._runtime.report_path and replica.address and not start.is_asked:
            start.is_asked = True
            url = f"http://{replica.address}{self._runtime.report_path}"
            self._tasks.start(self._hear(replica.id, url, start), name=f"report of {replica.id}")

    async def _hear(self, name: str, url: str, start: _Start) -> None:
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            try:
                async with self._slots:
                    content = await _answer(url)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.info("replica %s says nothing of its start: %s", name, error)
                continue
            start.report = self._runtime.reported(content)
            break
        else:
            start.report = PodReport((), {})
        self._changed()


async def _answer(url: str) -> bytes:
    """The beginning of it; raises aiohttp's errors and TimeoutError."""
    limit = aiohttp.ClientTimeout(total=TIMEOUT_S)
    content = bytearray()
    async with (
        aiohttp.ClientSession(timeout=limit, raise_for_status=True) as http,
        http.get(url, allow_redirects=False) as answer,
    ):
        async for piece in answer.content.iter_any():
            content += piece
            if len(content) > MOST_BYTES:
                break
    return bytes(content[:MOST_BYTES])
