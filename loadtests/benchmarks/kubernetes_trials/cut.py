"""Two gateways that are cut from each other, and overload at both of one replica with two slots."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import at_most, exactly
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.systems.release_user import ReleaseUser, host_of, release_user
from loadtests.systems.small_services import project
from tests.cluster.helm import RELEASE
from tests.cluster.pod_network import cut_from_each_other

NAME = "bench-cut"
SLOTS = 2
CALLERS = 8
"""Of each gateway: four times what the replica begins at once."""
LASTS_S, QUICK_S = 60.0, 10.0
WORKS_S = 0.1
IN_POD = 8080
"""Where a gateway listens in its pod."""
COUNTED = f"""class Counted:
    def __init__(self) -> None:
        self.begun, self.running, self.most = [], 0, 0

    @bentoml.api
    async def work(self, number: int) -> dict:
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep({WORKS_S})
        finally:
            self.running -= 1
        return {{"number": number}}

    @bentoml.api
    async def counts(self) -> dict:
        return {{"begun": self.begun, "most": self.most}}
"""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = project(folder / "counted", COUNTED, SLOTS)
    async with release_user(folder) as user:
        try:
            one = {"min_replicas": 1, "max_replicas": 1}
            await user.deploy(source, NAME, {"Counted": {"scaling": one}})
            answered = await _overloaded(user, QUICK_S if quick else LASTS_S)
            counts = await user.call(NAME, "counts")
        finally:
            await user.delete(NAME)
    return _rows(answered, counts)


async def _overloaded(user: ReleaseUser, lasts_s: float) -> list[Counter[object]]:
    """By gateway, how often each number was answered, or each failure came."""
    which = "--selector=app.kubernetes.io/name=hotplate-gateway"
    pods = [
        pod
        for pod in await user.listed("pods", f"--namespace={RELEASE}", which)
        if "deletionTimestamp" not in pod["metadata"]
    ]
    if len(pods) != 2:
        raise BenchmarkFailed(f"there are {len(pods)} gateways, and not two to cut from each other")
    answered: list[Counter[object]] = [Counter(), Counter()]
    numbers, over = itertools.count(), asyncio.Event()
    with cut_from_each_other(pods[0], pods[1], "gateway"):
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            for pod, own in zip(pods, answered, strict=True):
                for _ in range(CALLERS):
                    group.create_task(_ask_on(http, pod, numbers, own, over))
            await asyncio.sleep(lasts_s)
            over.set()
    return answered


async def _ask_on(
    http: aiohttp.ClientSession,
    pod: dict[str, Any],
    numbers: Iterator[int],
    answered: Counter[object],
    over: asyncio.Event,
) -> None:
    url = f"http://{pod['status']['podIP']}:{IN_POD}/work"
    while not over.is_set():
        asked = {"number": next(numbers)}
        try:
            async with http.post(url, json=asked, headers=host_of(NAME)) as answer:
                text = await answer.text()
                said = (await answer.json())["number"] if answer.status == 200 else text
                answered[said if said == asked["number"] else f"{answer.status} {said}"] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            answered[repr(error)] += 1


def _rows(answered: Sequence[Counter[object]], counts: dict[str, Any]) -> list[Row]:
    begun = Counter(counts["begun"])
    good = {number for each in answered for number in each if isinstance(number, int)}
    failures = [
        (str(what), count)
        for each in answered
        for what, count in each.items()
        if isinstance(what, str)
    ]
    failed = sum(count for _, count in failures)
    twice = sum(count > 1 for count in begun.values())
    said = f" ({failures[0][0][:150]})" if failures else ""
    of_each = [sum(isinstance(what, int) for what in each) for each in answered]
    what = "gateways cut from each other"
    return [
        bounded(f"{what}: most handlers at once, of 2 slots", at_most(SLOTS), counts["most"], 0),
        bounded(f"{what}: requests without an answer{said}", exactly(0), failed, 0),
        bounded(f"{what}: requests begun twice", exactly(0), twice, 0),
        bounded(f"{what}: answers to what never began", exactly(0), len(good - begun.keys()), 0),
        Row(
            f"{what}: requests answered by the one that answered fewer", ours=min(of_each), digits=0
        ),
        Row(f"{what}: of the other one", ours=max(of_each), digits=0),
    ]
