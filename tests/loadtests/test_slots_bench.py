"""The benchmark of learnt slots: its verdicts, its services, and its simulated replicas."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from loadtests.benchmarks.slot_trials import at_once, batches, blocking, simulated
from loadtests.benchmarks.slot_trials.pairs import project
from loadtests.benchmarks.slot_trials.table import beside
from loadtests.harness.bounds import at_least, at_most
from loadtests.systems.load import closed_loop
from tests.support.gateway.knees import Batching, Sharing


def test_a_bound_beside_the_peer_is_for_the_median_of_the_pairs() -> None:
    pairs = [(1.0, 1.0), (6.0, 5.0), (2.2, 2.0)]
    row = beside("s", pairs, of_peer=at_most(1.15))
    assert (row.ours, row.peer) == (2.2, 2.0)
    assert row.of_peer == pytest.approx(1.1)
    assert (row.bound, row.holds) == ("≤ 1.15 x bentoml serve", "yes")
    assert beside("s", pairs, of_peer=at_most(1.05)).holds == "NO"
    assert beside("s", pairs, ours=at_least(2.3)).holds == "NO"
    assert beside("s", pairs).bound == ""


@pytest.mark.parametrize("knee", [1, 4])
def test_simulated_replicas_are_held_against_the_best_fixed_number(knee: int) -> None:
    row = simulated.row_of("figure", knee, 0.1, range(2))
    assert (row.holds, row.seeds) == ("yes", "2 of 2")
    assert row.per_s == pytest.approx(1.0, abs=0.1)
    assert row.time is not None and 1.0 <= row.time <= 1.5


@pytest.mark.parametrize("number", [1, 4, 8])
def test_a_fixed_number_gives_what_the_replica_has(number: int) -> None:
    shown = simulated.Replica(Sharing, 4, 0.2).fixed(number, seed=1)
    assert shown.per_s == pytest.approx(min(4, number), rel=0.05)
    assert shown.time_s == pytest.approx(max(1, number / 4), rel=0.05)


def test_where_there_is_no_edge_the_best_is_the_most() -> None:
    per_s, time = simulated.Replica(Batching, 4, 0.1).shares(1)
    assert per_s < 0.9
    assert time < 1.5


def test_nothing_is_set_in_the_services(tmp_path: Path) -> None:
    sources = [project(tmp_path / "waits", at_once.WAITS), project(tmp_path / "t", at_once.TALKS)]
    sources += [project(tmp_path / "b", blocking.BLOCKS), batches.project_of(tmp_path / "embedder")]
    for folder in sources:
        tree = ast.parse((folder / "service.py").read_text())
        (service,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        (decorator,) = service.decorator_list
        assert isinstance(decorator, ast.Call)
        assert [keyword.arg for keyword in decorator.keywords] == ["image"]
    assert "batchable=True" in (tmp_path / "embedder" / "service.py").read_text()


async def test_closed_loop_clients_post_the_body_they_are_given(tmp_path: Path) -> None:
    bodies = set()

    async def answer(request: web.Request) -> web.Response:
        bodies.add(await request.text())
        return web.Response()

    app = web.Application()
    app.router.add_post("/embed", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/embed"))
        async with closed_loop(url, 2, 0.2, tmp_path, body='{"sentences": []}') as load:
            assert load.answered > 0
            assert load.failed == load.refused == 0
    assert bodies == {'{"sentences": []}'}
