from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hotplate.serving.gateway.protocol.control_planes import LEADER_FIELD, ControlPlanes
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, RouteDemand, RouteTable
from hotplate.serving.gateway.sources.control_plane_link import ControlPlaneLink
from hotplate.serving.gateway.sources.last_table import TableFile
from hotplate.serving.gateway.sources.report_schedule import BATCH_S
from tests.support.gateway.backends import Backend
from tests.support.gateway.control_planes import TOKEN, ControlPlane
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


@pytest.fixture
async def file(tmp_path: Path) -> TableFile:
    return TableFile(tmp_path / "state")


NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported is reported at once, or not within a test's life."""
    monkeypatch.setattr("hotplate.serving.gateway.sources.report_schedule.BATCH_S", 3600.0)


@pytest.fixture
async def link(
    kitchen: Kitchen, plane: ControlPlane, file: TableFile
) -> AsyncIterator[ControlPlaneLink]:
    planes = ControlPlanes(f"{NOBODY},{plane.url}")  # the first one does not answer
    link = ControlPlaneLink(kitchen.gateway, file, kitchen.reports, planes=planes, token=TOKEN)
    running = asyncio.create_task(link.run())
    await until(lambda: plane.reports)
    yield link
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_table_is_applied_acknowledged_and_kept(
    kitchen: Kitchen, plane: ControlPlane, file: TableFile, link: ControlPlaneLink
) -> None:
    route = replace(kitchen.route, schema='{"v": 7}', token_digests=None)
    await plane.send(7, route)
    await until(lambda: plane.reports[-1].version == 7)
    assert (await kitchen.ask("/schema.json")).body == b'{"v": 7}'
    assert file.load() == RouteTable(7, (route,))


async def test_the_line_follows_the_control_plane_that_answers(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    before = len(plane.reports)
    await plane.stop()
    await until(lambda: not kitchen.reports.connected)
    await plane.start()  # each is tried in its turn
    await until(lambda: len(plane.reports) > before)


async def test_the_line_goes_where_one_that_waits_says_that_another_acts(
    kitchen: Kitchen, plane: ControlPlane, file: TableFile
) -> None:
    async def turn_away(_: web.Request) -> web.Response:
        return web.Response(status=421, headers={LEADER_FIELD: plane.url})

    waiting = web.Application()
    waiting.router.add_get("/internal/gateway", turn_away)
    async with TestServer(waiting) as server:
        planes = ControlPlanes(str(server.make_url("/")))
        link = ControlPlaneLink(kitchen.gateway, file, kitchen.reports, planes=planes, token=TOKEN)
        running = asyncio.create_task(link.run())
        await until(lambda: plane.reports)
        assert planes.url == plane.url
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_older_table_is_ignored_and_answered_with_the_version_in_force(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    await plane.send(7, kitchen.route)
    await until(lambda: plane.reports[-1].version == 7)
    reports = len(plane.reports)
    await plane.send(6)
    await until(lambda: len(plane.reports) > reports)
    assert plane.reports[-1].version == 7
    assert (await kitchen.ask("/livez")).status == 200


async def test_who_is_out_and_what_was_refused_are_reported_as_they_change(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    def said() -> RouteDemand:
        return plane.reports[-1].routes.get(kitchen.route.name, RouteDemand())

    late = Backend()
    replica = ReplicaRoute("late", late.address)
    await plane.send(7, replace(kitchen.route, replicas=(replica,), queue_limit=1))
    await until(lambda: plane.reports[-1].version == 7)
    waits = await kitchen.send("/x")
    await until(lambda: "takes no connection" in said().out.get("late", ""))
    assert (await kitchen.ask("/x")).status == 429
    await until(lambda: said().refusals == {"share_full": 1})
    await late.start()
    assert (await waits.answer()).status == 200
    await until(lambda: said().out == {})
    await late.stop()


async def test_nonsense_is_ignored(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    for text in (
        "{",
        "[]",
        '{"type": "routes"}',
        '{"type": "other"}',
        '{"type": "routes", "version": 9, "routes": [1]}',
    ):
        await plane.say(text)
    await plane.send(8, kitchen.route)
    await until(lambda: plane.reports[-1].version == 8)


@pytest.mark.usefixtures("no_batch", "link")
async def test_demand_that_begins_is_reported_at_once(
    kitchen: Kitchen, plane: ControlPlane
) -> None:
    await kitchen.send("/x")
    await until(lambda: (last := plane.last(kitchen.route.name)) and last.queued == 1)


async def test_demand_that_ends_is_reported_in_a_batch(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    name = kitchen.route.name
    await kitchen.wake()
    await kitchen.ask("/x")
    await until(lambda: (last := plane.last(name)) is not None and last.demand == 0)
    last = plane.last(name)
    assert last is not None and last.completed == 1


async def test_what_came_and_went_between_two_reports_is_in_the_second_as_its_peak(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    name = kitchen.route.name
    await kitchen.wake()
    await asyncio.gather(*(kitchen.ask("/x") for _ in range(3)))
    await until(lambda: (last := plane.last(name)) is not None and last.completed == 3)
    assert max(report.routes[name].peak for report in plane.reports if name in report.routes) >= 2
    await kitchen.ask("/x")
    await until(lambda: (last := plane.last(name)) is not None and last.completed == 4)
    last = plane.last(name)
    assert last is not None and (last.demand, last.peak) == (0, 1)


async def test_nothing_is_reported_when_nothing_changed(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    await kitchen.ask("/livez")
    await asyncio.sleep(BATCH_S)
    assert await plane.quiet(3 * BATCH_S) == 0


async def test_many_requests_make_few_reports(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    before = len(plane.reports)
    began = asyncio.get_running_loop().time()
    for _ in range(200):
        await caller.ask("/x")
    batches = (asyncio.get_running_loop().time() - began) / BATCH_S
    assert len(plane.reports) - before <= 2 * batches + 3


@pytest.mark.usefixtures("no_batch", "link")
async def test_a_draining_replica_that_becomes_idle_is_reported_at_once(
    kitchen: Kitchen, plane: ControlPlane
) -> None:
    name = kitchen.route.name
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    await until(lambda: (last := plane.last(name)) is not None and last.busy == {"r1": 1})
    await kitchen.serve(replicas=(kitchen.replica(draining=True),))
    kitchen.backend.gate.set()
    await caller.answer()
    await until(lambda: (last := plane.last(name)) is not None and last.busy == {})


async def test_the_gateway_serves_on_and_connects_again_when_the_control_plane_was_away(
    kitchen: Kitchen, plane: ControlPlane, link: ControlPlaneLink
) -> None:
    await plane.send(40, replace(kitchen.route, replicas=(kitchen.replica(),)))
    await until(lambda: plane.reports[-1].version == 40)
    await plane.stop()
    await until(lambda: not kitchen.reports.connected)
    assert (await kitchen.ask("/x")).status == 200
    await plane.start()
    await until(lambda: plane.opened == 2)
    await until(lambda: kitchen.reports.connected)
    await plane.send(1, kitchen.route)  # begun anew: its first table counts, whatever its version
    await until(lambda: plane.reports[-1].version == 1)


async def test_a_broken_file_is_no_table(tmp_path: Path) -> None:
    for text in ("", "{}", "[1]", '{"version": 1, "routes": [{"name": "x"}]}'):
        (tmp_path / "routes.json").write_text(text)
        assert TableFile(tmp_path).load() is None


async def test_of_tables_that_come_faster_than_they_are_kept_only_the_last_has_to_be(
    kitchen: Kitchen, plane: ControlPlane, file: TableFile, link: ControlPlaneLink
) -> None:
    for version in range(7, 107):
        await plane.send(version, replace(kitchen.route, schema=f'{{"v": {version}}}'))
    await until(lambda: plane.reports[-1].version == 106)
    await until(lambda: (kept := file.load()) is not None and kept.version == 106)
    assert (await kitchen.ask("/schema.json")).body == b'{"v": 106}'


async def test_the_last_table_of_a_connection_that_ends_is_put_in_force(
    kitchen: Kitchen, plane: ControlPlane, file: TableFile, link: ControlPlaneLink
) -> None:
    for version in range(7, 12):
        await plane.send(version, replace(kitchen.route, schema=f'{{"v": {version}}}'))
    await plane.stop()
    await until(lambda: not kitchen.reports.connected)
    assert (await kitchen.ask("/schema.json")).body == b'{"v": 11}'
    assert (kept := file.load()) is not None and kept.version == 11
