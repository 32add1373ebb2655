"""The gateway beside its peers: what it costs, what it adds, what it promises.

Each trial is done with each proxy in each round. A figure is the median of the rounds, or the worst
of them where one failure breaks a guarantee.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests.benchmarks.gateway_trials import (
    abandoned,
    cost,
    fairness,
    idle,
    kills,
    latency,
    overload,
    replicas,
    tokens,
)
from loadtests.benchmarks.gateway_trials.trial import ROUNDS, Trial
from loadtests.harness.bounds import BoundedRow, verdict
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.report import column
from loadtests.systems.proxies import (
    AIOHTTP,
    BENTOML,
    DIRECT,
    HAPROXY,
    HAPROXY_ABORT,
    OURS,
    RAY,
    RAY_HAPROXY,
    Proxy,
    installed,
    opened,
    served,
)

TRIALS = [
    cost.TRIAL,
    cost.HOSTS,
    latency.LATENCY,
    latency.OVERHEAD,
    overload.OVERLOAD,
    overload.LEAVING,
    abandoned.TRIAL,
    fairness.EQUAL,
    fairness.WEIGHTED,
    replicas.TRIAL,
    idle.TRIAL,
    tokens.TRIAL,
    kills.TRIAL,
]
PARTS = [trial.name for trial in TRIALS]


@dataclass(frozen=True)
class Row(BoundedRow):
    ours: float | None = column("hotplate")
    haproxy: float | None = column("haproxy")
    haproxy_abort: float | None = column("haproxy, abortonclose")
    aiohttp: float | None = column("aiohttp")
    bentoml: float | None = column("bentoml serve")
    ray: float | None = column("ray serve")
    ray_haproxy: float | None = column("ray serve, haproxy")
    none: float | None = column("none")
    digits: int | None = None
    """How the figures are shown."""


COLUMNS = {
    OURS: "ours",
    HAPROXY: "haproxy",
    HAPROXY_ABORT: "haproxy_abort",
    AIOHTTP: "aiohttp",
    BENTOML: "bentoml",
    RAY: "ray",
    RAY_HAPROXY: "ray_haproxy",
    DIRECT: "none",
}
Samples = dict[tuple[str, str], list[Mapping[str, float]]]
"""By trial and proxy, a sample per round."""


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    trials = [trial for trial in TRIALS if not parts or trial.name in parts]
    samples: Samples = defaultdict(list)
    for number in range(1 if quick else ROUNDS):
        for group in groups_of([trial for trial in trials if number < trial.rounds]):
            await _round(group, folder / str(number), quick, samples)
    missing = {name: "it is not installed" for name in COLUMNS if not installed(name)}
    heavy = {name: trial for trial in trials for name in trial.heavy}
    if quick:
        missing |= dict.fromkeys(heavy, "it is slow to start, and --quick leaves it out")
    else:
        for name in heavy:
            try:
                await _heavy(name, trials, folder / COLUMNS[name], samples)
            except BenchmarkFailed as error:
                missing[name] = f"…{str(error)[-SHOWN:]}" if len(str(error)) > SHOWN else str(error)
    rows = [row_of(trial, key, samples) for trial in trials for key in trial.figures]
    reasons = {why: [name for name in missing if missing[name] == why] for why in missing.values()}
    return [*rows, *(Row(f"not {', '.join(names)}: {why}") for why, names in reasons.items())]


def groups_of(trials: Sequence[Trial]) -> list[list[Trial]]:
    """The groups of neighbours that run together, in order."""
    groups: list[list[Trial]] = []
    for trial in trials:
        if trial.together and groups and groups[-1][0].together == trial.together:
            groups[-1].append(trial)
        else:
            groups.append([trial])
    return groups


async def _round(group: Sequence[Trial], folder: Path, quick: bool, samples: Samples) -> None:
    """Starts fresh proxies and replicas, because some leave work behind that runs on for long."""
    async with AsyncExitStack() as stack:
        stack.enter_context(_own_core(group[0]))
        work = []
        for trial in group:
            own = folder / trial.name
            for proxy in await stack.enter_async_context(opened(trial.proxies, trial.plan, own)):
                work.append(_sample(trial, proxy, own, quick, samples))
        if group[0].together:
            await asyncio.gather(*work)
        else:
            for one in work:
                await one


async def _sample(trial: Trial, proxy: Proxy, folder: Path, quick: bool, samples: Samples) -> None:
    if trial.pinned and proxy.process is not None and len(_CORES) > 1:
        proxy.process.pin(_CORES[0])
    samples[trial.name, proxy.name].append(await trial.sample(proxy, folder, quick))


async def _heavy(name: str, trials: Sequence[Trial], folder: Path, samples: Samples) -> None:
    """Does all rounds of a peer that is slow to start, with one start for each plan."""
    todo = [trial for trial in trials if name in trial.heavy]
    while todo:
        plan = todo[0].plan
        same = [trial for trial in todo if trial.plan == plan]
        todo = [trial for trial in todo if trial.plan != plan]
        own = folder / same[0].name
        own.mkdir(parents=True)
        with _own_core(same[0]):
            async with served(name, plan, own) as proxy:
                for trial in same:
                    for _ in range(trial.heavy_rounds):
                        await _sample(trial, proxy, own, False, samples)


SHOWN = 100
"""Characters of the reason why a peer is missing: its end says most."""
_CORES = sorted(os.sched_getaffinity(0))


@contextmanager
def _own_core(trial: Trial) -> Iterator[None]:
    """Starts everything on the last core; only the proxy is pinned to the first one, later."""
    if trial.pinned and len(_CORES) > 1:
        os.sched_setaffinity(0, _CORES[-1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, _CORES)


def row_of(trial: Trial, key: str, samples: Samples) -> Row:
    figure = trial.figures[key]
    directs = [sample[key] for sample in samples[trial.name, DIRECT] if figure.above_direct]
    values = {}
    for name in (*trial.proxies, *trial.heavy):
        found = [sample[key] for sample in samples[trial.name, name] if key in sample]
        if found and directs:
            found = [value - direct for value, direct in zip(found, directs, strict=True)]
        if found and not (directs and name == DIRECT):
            values[name] = figure.of_rounds(found)
    holds = ""
    if figure.bound and OURS in values:
        holds = verdict(figure.holds(values[OURS], values.get(HAPROXY)))
    cells = {COLUMNS[name]: value for name, value in values.items()}
    return Row(figure.what, figure.bound, holds, **cells, digits=figure.digits)
