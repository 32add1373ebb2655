"""From no pod to the first answer, with the environment on the node; and what a ready one waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import at_most
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import until
from loadtests.harness.report import median
from loadtests.systems.object_watch import ObjectWatch, watched
from loadtests.systems.release_user import NAMESPACE, ReleaseUser, release_user
from loadtests.systems.small_services import project
from tests.support.end_to_end.cold_start import ColdStart
from tests.support.services.bentos import SLEEPY

NAME = "bench-starts"
STARTS = 20
RECORD_S = 15.0
TIMED = """class Timed:
    def __init__(self) -> None:
        self.made_at = time.time()

    @bentoml.api
    async def moments(self) -> dict:
        return {"made_at": self.made_at, "began_at": time.time()}
"""
PHASES = ("instance", "environment", "process", "weights", "init")


@dataclass(frozen=True)
class Sample:
    """One start; seconds."""

    answer_s: float
    """From the request to its answer."""
    reached_s: float
    """From the worker's last own step, its service's `__init__`, to its first request's handler."""
    kubernetes_s: float
    """From there until an EndpointSlice calls the pod ready."""
    recorded: ColdStart


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source, samples = project(folder / "timed", TIMED), []
    async with release_user(folder) as user:
        try:
            await user.deploy(source, NAME, {"Timed": {"scaling": SLEEPY}})
            whose = f"hotplate.dev/deployment={NAME}"
            for _ in range(3 if quick else STARTS):
                await user.asleep(NAME)
                async with watched("endpointslices", NAMESPACE, whose) as slices:
                    samples.append(await _started(user, slices))
        finally:
            await user.delete(NAME)
    return _rows(samples)


async def _started(user: ReleaseUser, slices: ObjectWatch) -> Sample:
    before, asked = await _recorded(user), time.perf_counter()
    moments = await user.call(NAME, "moments")
    answer_s = time.perf_counter() - asked

    async def on_record() -> bool:
        # Only what its program has said of itself parts its process from the rest.
        recorded = await _recorded(user)
        new = recorded.keys() - before.keys()
        return any(recorded[pod].share_s["process"] and _called_ready(slices, pod) for pod in new)

    await until(on_record, RECORD_S, "no cold start is on record")
    recorded = await _recorded(user)
    (pod,) = recorded.keys() - before.keys()
    made_at = moments["made_at"]
    return Sample(
        answer_s,
        moments["began_at"] - made_at,
        _called_ready(slices, pod)[0] - made_at,
        recorded[pod],
    )


async def _recorded(user: ReleaseUser) -> dict[str, ColdStart]:
    """The starts on record, by pod."""
    found = map(ColdStart.of, await user.deployment(NAME, "/cold_starts"))
    return {each.replica: each for each in found}


def _called_ready(slices: ObjectWatch, pod: str) -> list[float]:
    """When the pod's address was called ready, by the watch."""
    return [
        change.at
        for change in slices.changes
        for each in change.object.get("endpoints") or ()
        if each["conditions"].get("ready") and each.get("targetRef", {}).get("name") == pod
    ]


def _rows(samples: Sequence[Sample]) -> list[Row]:
    if not samples:
        raise BenchmarkFailed("nothing was started")
    answers_s = sorted(sample.answer_s for sample in samples)
    p95_s = answers_s[min(len(answers_s) - 1, int(0.95 * len(answers_s)))]
    errors = [sample.recorded.share_error * 100 for sample in samples]
    five, seven, percent, reached = at_most(5), at_most(7), at_most(5), at_most(0.3)
    figure = f"0 to 1, {len(samples)} times"
    phases = [
        Row(
            f"{figure}: {name}, s (median)",
            ours=median(one.recorded.share_s.get(name, 0.0) for one in samples),
        )
        for name in PHASES
    ]
    reached_s = median(sample.reached_s for sample in samples)
    kubernetes_s = median(sample.kubernetes_s for sample in samples)
    ready = bounded("worker ready until its first request, s (median)", reached, reached_s)
    return [
        bounded(f"{figure}: request to answer, s (p50)", five, median(answers_s)),
        bounded(f"{figure}: request to answer, s (p95)", seven, p95_s),
        bounded(f"{figure}: phases differ from the whole, % (worst)", percent, max(errors), 1),
        *phases,
        Row(ready.figure, ready.bound, ready.holds, ready.ours, kubernetes_s),
    ]
