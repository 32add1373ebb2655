"""What pods are made of, as their runtime says; and of which workloads it cannot be said now, and
why.

A workload of which it cannot be said has as many replicas as are wanted, all the same, which no pod
stands for: they start while something is made, wait while something is missing, or have failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from hotplate.deploy.cluster.pod_spec import PodRuntime, PodSpec
from hotplate.deploy.cluster.pods import late
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.errors import BeingPrepared, DeployError, PrepareFailed
from hotplate.deploy.phases import Phase, unix_now
from hotplate.deploy.process.backoff import Backoff
from hotplate.deploy.workload import Workload, WorkloadKey

log = logging.getLogger(__name__)


@dataclass
class _Waiting:
    error: BeingPrepared | PrepareFailed
    backoff: Backoff = field(default_factory=Backoff)
    until: float = 0.0
    """When it is asked for again, by the loop's clock."""
    wanted_at: float | None = None
    """Since when it has been waited for, by the loop's clock."""
    since: float = field(default_factory=unix_now)
    """The same in Unix seconds, or since when it waits."""


class Preparing:
    """Lives on one event loop."""

    def __init__(self, runtime: PodRuntime, changed: Callable[[], None]) -> None:
        self._runtime, self._changed = runtime, changed
        self._waiting: dict[WorkloadKey, _Waiting] = {}
        runtime.subscribe(self._ask_again)

    async def pod(self, workload: Workload, base: str, namespace: str) -> PodSpec | None:
        """What its pods are made of; None while it cannot be said."""
        key, now = workload.key, asyncio.get_running_loop().time()
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.until > now:
            return None
        try:
            pod = await self._runtime.pod_spec(workload, base, namespace)
        except (BeingPrepared, PrepareFailed) as error:
            self._note(key, error, now)
            return None
        except Exception as error:  # whatever it is, other workloads must not wait for it
            log.warning("what pods of %s are made of cannot be said", key, exc_info=error)
            said = (
                str(error) if isinstance(error, DeployError) else f"{type(error).__name__}: {error}"
            )
            self._note(key, PrepareFailed(said, retry=True), now)
            return None
        if self._waiting.pop(key, None) is not None:
            self._changed()
        return pod

    def pause_s(self, longest_s: float) -> float:
        """How long until something is to be asked for again, at most `longest_s`."""
        now = asyncio.get_running_loop().time()
        dues = [each.until - now for each in self._waiting.values() if each.until]
        return max(0.0, min([longest_s, *dues]))

    def follow(self, wanted: Collection[WorkloadKey]) -> None:
        """Replicas of these are wanted; others are waited for by nobody."""
        now = asyncio.get_running_loop().time()
        for key, waiting in self._waiting.items():
            if key not in wanted:
                waiting.wanted_at = None
            elif waiting.wanted_at is None:
                waiting.wanted_at, waiting.since = now, unix_now()

    def forget(self, kept: Collection[WorkloadKey]) -> None:
        """All others are gone."""
        self._waiting = {key: each for key, each in self._waiting.items() if key in kept}

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._waiting

    def replica(self, workload: Workload, name: str) -> Replica:
        """One that waits, under that name."""
        waiting = self._waiting[workload.key]
        error, since = waiting.error, waiting.since
        state, reason = _state(error), str(error)
        if state is ReplicaState.STARTING and self._is_late(waiting, workload):
            state, reason = ReplicaState.BACKOFF, late(workload.cold_start_timeout_s, reason)
        failure = error if isinstance(error, PrepareFailed) else None
        return Replica(
            id=name,
            key=workload.key,
            state=state,
            reason=reason,
            resources=workload.resources,
            created_at=since,
            phases=(Phase("instance", since, since), Phase("environment", since)),
            build_log=error.log if isinstance(error, BeingPrepared) else "",
            unbuilt=failure is not None and failure.unbuilt,
            log_tail=failure.log if failure is not None else (),
        )

    def _note(self, key: WorkloadKey, error: BeingPrepared | PrepareFailed, now: float) -> None:
        before = self._waiting.get(key)
        waiting = before or _Waiting(error)
        if isinstance(error, PrepareFailed):
            waiting.backoff, pause_s = waiting.backoff.failed(0.0)
            waiting.until = now + pause_s
        else:
            waiting.backoff, waiting.until = Backoff(), 0.0
        known = before is not None and _shown(before.error) == _shown(error)
        waiting.error = error
        self._waiting[key] = waiting
        if not known:
            self._changed()

    def _is_late(self, waiting: _Waiting, workload: Workload) -> bool:
        if waiting.wanted_at is None:
            return False
        waited_s = asyncio.get_running_loop().time() - waiting.wanted_at
        return waited_s > workload.cold_start_timeout_s

    def _ask_again(self) -> None:
        for waiting in self._waiting.values():
            waiting.until = 0.0
        self._changed()


def _state(error: BeingPrepared | PrepareFailed) -> ReplicaState:
    if isinstance(error, BeingPrepared):
        return ReplicaState.STARTING
    waits = error.retry or error.no_room
    return ReplicaState.PENDING if waits else ReplicaState.FAILED


def _shown(error: BeingPrepared | PrepareFailed) -> tuple[object, ...]:
    return type(error), str(error), error.log
