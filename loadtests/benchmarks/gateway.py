"""What a request through a proxy costs: 1 KiB there, 1 KiB back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.fronts import AIOHTTP, DIRECT, HAPROXY, OURS, Front, installed, opened
from loadtests.load import Load, clients, saturate
from loadtests.report import column, median, ratio

FRONTS = [DIRECT, OURS, AIOHTTP, HAPROXY]
SLOTS = 16
CONNECTIONS = 64
"""Four times the slots, so that the queue is in use."""
CALM_CLIENTS = 8
"""Half the slots: no request waits for one."""
WORK_S = 0.01


@dataclass(frozen=True)
class Row:
    front: str
    requests_per_s: float | None = column("req/s")
    cpu_s_per_10k: float | None = column("CPU s / 10k", 3)
    cpu_ratio: float | None = column("x ours", 2)
    p50_ms: float | None = column("p50 ms", 2)
    p99_ms: float | None = column("p99 ms", 2)
    added_p50_ms: float | None = column("added p50 ms", 2)
    added_p99_ms: float | None = column("added p99 ms", 2)
    failed: int | None = column("failed")
    note: str = ""


@dataclass(frozen=True)
class Sample:
    """One round of one front."""

    busy: Load
    cpu_s: float
    """Of the front, during `busy`."""
    calm: Load

    @property
    def cpu_s_per_10k(self) -> float:
        return self.cpu_s / self.busy.answered * 10_000


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    rounds, seconds = (1, 0.5) if quick else (3, 2.5)
    samples: dict[str, list[Sample]] = defaultdict(list)
    async with opened(FRONTS, SLOTS, folder) as fronts:
        for front in fronts.values():
            await saturate(f"{front.url}/work/0", CONNECTIONS, seconds / 3, folder)
        for _ in range(rounds):
            for name, front in fronts.items():
                samples[name].append(await _sample(front, seconds, folder))
    rows: list[Row] = []
    for name in FRONTS:
        rows.append(_row(name, samples) if installed(name) else Row(name, note="not installed"))
    return rows


async def _sample(front: Front, seconds: float, folder: Path) -> Sample:
    before_s = front.cpu_s()
    busy = await saturate(f"{front.url}/work/0", CONNECTIONS, seconds, folder)
    cpu_s = front.cpu_s() - before_s
    url = f"{front.url}/work/{WORK_S}"
    async with clients(url, CALM_CLIENTS, seconds, folder) as calm:
        return Sample(busy, cpu_s, calm)


def _row(name: str, samples: dict[str, list[Sample]]) -> Row:
    mine, direct = samples[name], samples[DIRECT]
    cpu = None if name == DIRECT else median(one.cpu_s_per_10k for one in mine)
    p50 = median(one.calm.p50_ms for one in mine)
    p99 = median(one.calm.p99_ms for one in mine)
    return Row(
        name,
        requests_per_s=median(one.busy.answers_per_s for one in mine),
        cpu_s_per_10k=cpu,
        cpu_ratio=ratio(cpu, median(one.cpu_s_per_10k for one in samples[OURS])),
        p50_ms=p50,
        p99_ms=p99,
        added_p50_ms=p50 - median(one.calm.p50_ms for one in direct),
        added_p99_ms=p99 - median(one.calm.p99_ms for one in direct),
        failed=sum(load.failed + load.refused for one in mine for load in (one.busy, one.calm)),
    )
