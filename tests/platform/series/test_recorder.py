"""What the recorder follows, writes, and goes on with; by the clock only where it must."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hotplate.deploy.engine import ReplicaUsage
from hotplate.deploy.standbys import StandbyView
from hotplate.machine.access.metrics_page import OrganizationMetrics
from hotplate.platform.errors import StoreFailed
from hotplate.platform.series.metrics import GpuSecondsMetrics
from hotplate.platform.series.points import merged
from hotplate.platform.series.recorder import SeriesRecorder, Subject
from hotplate.platform.series.standby_gpus import standby_gpus
from hotplate.platform.series.track import Seen, Use
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from tests.platform.series.test_writing import deployed
from tests.support.patience import until

BUSY = Seen("r1", "Echo", Use.READY, is_busy=True, gpus=2.0)
FAR = 1 << 40


def subject(of: Deployment) -> Subject:
    name, tenant = of.name, of.organization
    return Subject(of.id, tenant.id, tenant.name, name, f"{tenant.name}/{name}")


def requests(store: Store, of: Deployment) -> int:
    from hotplate.platform.series.blocks import decoded

    blocks = store.series.between(10, 0, FAR, [of.id])
    points = [point for block in blocks for point in decoded(block.at, block.points).values()]
    return int(merged(points).get("requests", 0))


async def test_of_what_sleeps_nothing_is_written(store: Store) -> None:
    of, recorder = deployed(store), SeriesRecorder(store)
    recorder.look(subject(of), (), wanted=0, in_flight=0, queued=0)
    await recorder.end_step()
    await recorder.flush()
    assert store.series.between(10, 0, FAR) == []
    assert store.organization_series.between(10, 0, FAR) == []
    assert recorder.unwritten(of.id) == []


async def test_what_a_gateway_counted_before_anybody_looked_is_kept(store: Store) -> None:
    of, recorder = deployed(store), SeriesRecorder(store)
    recorder.counted({"acme/echo": RouteCounts(answered=5), "acme/other": RouteCounts(answered=9)})
    recorder.look(subject(of), [BUSY], wanted=1, in_flight=1, queued=0)
    recorder.counted({"acme/echo@7/Inner": RouteCounts(answered=70)})
    await recorder.end_step()
    await recorder.flush()
    assert requests(store, of) == 5, "what services of one bento ask each other is no request"


async def test_what_the_database_does_not_take_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, recorder = deployed(store), SeriesRecorder(store)
    recorder.look(subject(of), [BUSY], wanted=1, in_flight=1, queued=0)
    recorder.counted({"acme/echo": RouteCounts(answered=1)})
    await recorder.end_step()
    with monkeypatch.context() as broken:

        def full(*_: object) -> None:
            raise StoreFailed("the disk is full")

        broken.setattr(store.costs, "add", full)
        await recorder.flush()
    assert store.series.between(10, 0, FAR) == []
    recorder.counted({"acme/echo": RouteCounts(answered=2)})
    await recorder.end_step()
    await recorder.flush()
    assert requests(store, of) == 3
    assert store.costs.between(0, FAR)[0].taken.requests == 3


async def test_it_goes_on_by_the_clock_and_writes_what_is_left_at_its_end(store: Store) -> None:
    async def used() -> dict[str, ReplicaUsage]:
        return {"r1": ReplicaUsage(cpu_s=1.0, memory_bytes=5)}

    of, recorder = deployed(store), SeriesRecorder(store, used)
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    recorder.look(subject(of), [BUSY], wanted=1, in_flight=1, queued=0)
    recorder.counted({"acme/echo": RouteCounts(answered=4)})
    await until(lambda: recorder.gpu_s() != {})  # the step has ended
    point = dict(recorder.unwritten(of.id)[0][1])
    assert (point["memory_bytes"], point["awake"]) == (5, 1)
    running.cancel()
    await asyncio.wait([running])
    assert requests(store, of) == 4


async def test_a_deployment_that_is_gone_leaves_what_it_took_and_no_line(store: Store) -> None:
    of, recorder = deployed(store), SeriesRecorder(store)
    registry = CollectorRegistry()
    registry.register(GpuSecondsMetrics(recorder.gpu_s))
    recorder.look(subject(of), [BUSY], wanted=1, in_flight=1, queued=0)
    await asyncio.sleep(0.01)
    await recorder.end_step()
    page = generate_latest(OrganizationMetrics(registry, "acme")).decode()
    line = (
        'hotplate_controller_gpu_seconds_total{deployment="acme/echo",organization="acme",'
        'service="Echo",use="busy"}'
    )
    assert line in page
    assert generate_latest(OrganizationMetrics(registry, "beta")) == b""
    await asyncio.sleep(0.01)
    recorder.forget(of.id)
    assert line not in generate_latest(registry).decode()
    store.deployments.forget(of.id)
    await recorder.flush()
    assert store.series.between(10, 0, FAR) == []
    (cost,) = store.costs.between(0, FAR)
    assert cost.taken.gpu_busy_s == pytest.approx(2 * cost.taken.replica_busy_s)
    assert cost.taken.replica_busy_s >= 0.02, "what came since the last step too"


async def test_an_organization_has_what_goes_on_beside_what_has_gone_in_the_same_step(
    store: Store,
) -> None:
    gone, recorder = deployed(store), SeriesRecorder(store)
    stays = replace(gone, id=gone.id + 1, name="stays")
    for number, of in enumerate((gone, stays), 1):
        recorder.look(subject(of), [BUSY], wanted=1, in_flight=1, queued=0)
        recorder.counted({f"acme/{of.name}": RouteCounts(answered=number)})
    recorder.forget(gone.id)
    points = recorder.unwritten_of(gone.organization.id)
    assert len({at for at, _ in points}) == len(points)
    assert sum(point["requests"] for _, point in points) == 3


async def test_gpus_of_standbys_are_their_organizations(store: Store) -> None:
    of = deployed(store)
    recorder = SeriesRecorder(store, standbys=lambda: {of.organization.id: 2.0})
    starting = Seen("r2", "Echo", Use.STARTING, gpus=0.5)
    recorder.look(subject(of), [BUSY, starting], wanted=2, in_flight=1, queued=0)
    assert recorder.gpus() == {"busy": 2.0, "idle": 0.0, "starting": 0.5, "standby": 2.0}
    await recorder.end_step()
    await asyncio.sleep(0.02)
    await recorder.end_step()
    await recorder.flush()
    costs = {cost.deployment: cost.taken for cost in store.costs.between(0, FAR)}
    assert costs[""].standby_gpu_s >= 0.04
    assert costs["echo"].standby_gpu_s == 0


def test_a_gpu_counts_once_however_many_wait_on_it() -> None:
    def view(organization: str, *gpus: int, ready: int = 1) -> StandbyView:
        rest = (0, 0, "", 0, 0, 0, 0.0)
        return StandbyView("p", "e", gpus, ready, *rest, organization=organization)

    views = [view("a", 0, 1), view("a", 1), view("b", 2, ready=0), view("", 3), view("gone", 4)]
    assert standby_gpus(views, {"a": 1, "b": 2, "": 9}) == {1: 2.0, 9: 1.0}
