"""What is asked of pods when they are ready, and what becomes of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from hotplate.deploy.cluster import starts as limits
from hotplate.deploy.cluster.pod_spec import PodReport, PodRuntime, PodSpec
from hotplate.deploy.cluster.pod_times import PodTimes
from hotplate.deploy.cluster.starts import Starts
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.phases import unix_now
from hotplate.deploy.workload import Workload, WorkloadKey
from tests.support.patience import until

KEY = WorkloadKey("acme", "hello", 1, "Hello")


class Reporting(PodRuntime):
    report_path = "/hotplate/report"

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def pod_spec(self, workload: Workload, service_account: str, namespace: str) -> PodSpec:
        raise NotImplementedError

    def subscribe(self, changed: Callable[[], None]) -> None:
        pass

    def reported(self, content: bytes) -> PodReport | None:
        self.heard.append(content)
        return PodReport((), {"said": content.decode()[:9]})


class Program:
    """What answers in a pod."""

    def __init__(self) -> None:
        self.asked = 0
        self.statuses: list[int] = []
        self.body = b"so it was"
        self.address = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Program]:
        app = web.Application()
        app.router.add_get("/hotplate/report", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = "{}:{}".format(*runner.addresses[0][:2])
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, body=self.body)


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with Program().running() as made:
        yield made


@pytest.fixture
async def starts(runtime: Reporting) -> AsyncIterator[Starts]:
    made = Starts(runtime, lambda: None)
    yield made
    await made.close()


@pytest.fixture
def runtime() -> Reporting:
    return Reporting()


def ready(program: Program, ready_at: float = 12.0) -> Replica:
    state = ReplicaState.READY
    return Replica("pod", KEY, state, "u1", address=program.address, ready_at=ready_at)


async def test_a_pod_is_asked_once_when_it_is_ready(starts: Starts, program: Program) -> None:
    starts.follow([replace(ready(program), state=ReplicaState.STARTING, ready_at=None)])
    assert starts.heard("u1", 0) is None
    for _ in range(3):
        starts.follow([ready(program)])
    report = await until(lambda: starts.heard("u1", 0))
    assert report is not None and report.about == {"said": "so it was"}
    starts.follow([ready(program)])
    assert program.asked == 1
    starts.follow([])
    assert starts.heard("u1", 0) is None, "it has gone"


async def test_one_that_does_not_answer_is_asked_again(
    starts: Starts, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAUSES_S", (0.0, 0.01, 0.01))
    program.statuses = [503]
    starts.follow([ready(program)])
    assert await until(lambda: starts.heard("u1", 0))
    assert program.asked == 2


async def test_an_answer_without_end_is_cut(
    starts: Starts, program: Program, runtime: Reporting
) -> None:
    program.body = b"x" * (2 * limits.MOST_BYTES)
    starts.follow([ready(program)])
    await until(lambda: runtime.heard)
    assert len(runtime.heard[0]) == limits.MOST_BYTES


async def test_a_container_that_starts_again_is_another_start(
    starts: Starts, program: Program
) -> None:
    starts.follow([ready(program)])
    assert await until(lambda: starts.heard("u1", 0))
    starts.follow([replace(ready(program, 30.0), restarts=1)])
    assert starts.heard("u1", 0) is None
    assert await until(lambda: starts.heard("u1", 1))
    assert program.asked == 2


async def test_when_it_was_ready_first_stays_known(starts: Starts, program: Program) -> None:
    starts.follow([ready(program, 12.0)])
    starts.follow([replace(ready(program), state=ReplicaState.UNREADY, ready_at=5.0)])
    starts.follow([ready(program, 99.0)])
    assert starts.sharpened("u1", 0, PodTimes(1.0, 2.0, 3.0, 99.0)).ready_at == 12.0


async def test_whole_seconds_are_told_closer_by_who_saw_them_pass(starts: Starts) -> None:
    now = unix_now()
    made = PodTimes(float(int(now)))
    first = starts.sharpened("u1", 0, made).created_at
    assert now <= first <= unix_now() or first == made.created_at + 1
    assert starts.sharpened("u1", 0, replace(made, placed_at=made.created_at)).created_at == first
    old = PodTimes(1.0, 1.0, 3.0, 4.0)
    assert starts.sharpened("u2", 0, old) == PodTimes(2.0, 2.0, 4.0, 5.0)
