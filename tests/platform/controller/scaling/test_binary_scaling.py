"""Binary scaling by a real Prometheus: what it refuses, does not know or cannot reach holds."""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hotplate.autoscaler.binary import Reading
from hotplate.autoscaler.policy import Cause, Decision, Demand, Replicas
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller import event_recorder as recorder
from hotplate.platform.controller.scaling import query_watch
from hotplate.platform.controller.scaling.deciders import Recommendation, Scaling
from hotplate.platform.controller.scaling.prometheus import MOST_BYTES, Prometheus
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.label_settings import check_label_settings
from hotplate.platform.store.deployments import RevisionDraft
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_world import World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port

UNACKED = (
    'max_over_time(rabbitmq_queue_messages_unacked{queue="celery-model-training-tasks-gpu"}[30m])'
)
READY = UNACKED.replace("unacked", "ready")
RAY = 'max_over_time(clamp_min(sum(ray_tasks{State!~"FINISHED|FAILED"}[15s]), 0)[30m]) or vector(0)'
SEED = {
    "autoscaling/enabled": "true",
    "autoscaling/max_replicas": "1",
    "autoscaling/queries": f"{UNACKED}&{READY}&{RAY}",
}


ELSEWHERE = {"Location": "/elsewhere"}


def labels(**more: str) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in (SEED | more).items()]


class Queue:
    """What is scraped."""

    text = ""
    status = 200

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self.text, status=self.status, content_type="text/plain")


@pytest.fixture
async def queue() -> AsyncIterator[tuple[Queue, str]]:
    """A queue's metrics, and the URL of a Prometheus that scrapes them every 100 ms."""
    if not (program := shutil.which("prometheus")):
        pytest.skip("no prometheus here (Debian: apt-get install prometheus)")
    queue = Queue()
    app = web.Application()
    app.router.add_get("/metrics", queue.metrics)
    async with TestServer(app) as server:
        assert server.port is not None
        with prometheus_at(program, server.port) as url:
            await _scraped(url)
            yield queue, url


@contextmanager
def prometheus_at(program: str, target_port: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "prometheus.yml")
        settings.write_text(
            "global: {scrape_interval: 300ms, scrape_timeout: 300ms}\n"
            "scrape_configs: [{job_name: rabbitmq, static_configs: "
            f"[{{targets: ['127.0.0.1:{target_port}']}}]}}]\n"
        )
        port = free_port()
        process = subprocess.Popen(
            [
                program,
                f"--config.file={settings}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


async def _scraped(url: str) -> None:
    prometheus = Prometheus(url)
    await sooner_or_later(prometheus, "up == 1", lambda reading: reading.value == 1)
    await prometheus.close()


async def sooner_or_later(
    prometheus: Prometheus, query: str, good: Callable[[Reading], bool]
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not good(await prometheus.read(query, "up")):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)


async def test_a_real_prometheus_is_believed_only_in_what_it_knows(
    queue: tuple[Queue, str],
) -> None:
    scraped, url = queue
    prometheus, binary = Prometheus(url), binary_of(labels())
    assert binary is not None
    for query in binary.asked:  # the known broken one, too
        assert (await prometheus.read(query, binary.up)).value == 0
    assert "refuses" in (await prometheus.read(RAY, "up")).problem
    assert "QueryInvalid" in (await prometheus.read("sum(", "up")).problem
    assert "gives a matrix" in (await prometheus.read("up[5m]", "up")).problem
    nan = (await prometheus.read("vector(0) / 0", "up")).value
    assert nan is not None
    assert math.isnan(nan)
    assert "no scraped target" in (await prometheus.read("absent_metric", 'up{job="x"}')).problem
    scraped.text = 'rabbitmq_queue_messages_ready{queue="celery-model-training-tasks-gpu"} 4\n'
    await sooner_or_later(prometheus, READY, lambda reading: reading.value == 4)
    scraped.status = 500
    await sooner_or_later(prometheus, "vector(0)", lambda r: "is down" in r.problem)
    assert "no Prometheus is configured" in (await Prometheus("").read("x", "up")).problem
    nobody = Prometheus(f"http://127.0.0.1:{free_port()}")
    assert "cannot be reached" in (await nobody.read("x", "up")).problem
    await asyncio.gather(prometheus.close(), nobody.close())


def refused(kind: str) -> web.Response:
    return web.json_response({"status": "error", "errorType": kind, "error": "why"}, status=503)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda: web.Response(text="<html>It works</html>"), "responds with 200 and no result"),
        (lambda: web.Response(text="[" * 100_000), "responds with 200 and no result"),
        (lambda: vector({"value": []}), "responds with 200 and no result"),
        (lambda: vector({"histogram": [0, {}]}), "responds with 200 and no result"),
        (lambda: web.Response(text="null"), "responds with 200 and no result"),
        (lambda: web.Response(status=503, text="Starting"), "responds with 503 and no result"),
        (lambda: web.Response(status=302, headers=ELSEWHERE), "responds with 302 and no result"),
        (lambda: web.Response(text=" " * (MOST_BYTES + 1)), "with more than 4 MiB"),
        (lambda: refused("timeout"), "could not answer 'x': why"),
        (lambda: refused("bad_data"), "QueryInvalid: Prometheus refuses 'x': why"),
    ],
)
async def test_whatever_answers_in_place_of_a_prometheus_is_not_known_and_not_raised(
    answer: Callable[[], web.Response], problem: str
) -> None:
    async def query(_: web.Request) -> web.Response:
        return answer()

    async def elsewhere(_: web.Request) -> web.Response:
        return vector({"value": [0, "1"]})

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    app.router.add_get("/elsewhere", elsewhere)
    async with TestServer(app) as server:
        prometheus = Prometheus(str(server.make_url("/")))
        assert problem in (await prometheus.read("x", "up")).problem
        await prometheus.close()


def vector(*samples: dict[str, Any]) -> web.Response:
    data = {"resultType": "vector", "result": samples}
    return web.json_response({"status": "success", "data": data})


async def test_queries_turn_a_deployment_on_and_off_and_the_decision_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_watch, "EVERY_S", 0.05)
    said = {"status": "success", "data": {"resultType": "vector", "result": []}}
    value = "0"

    async def query(request: web.Request) -> web.Response:
        asked = (await request.post())["query"]
        if value == "refused":
            return web.json_response({"status": "error", "error": "parse error"}, status=400)
        sample = {"value": [0, "1" if asked == "up" else value]}
        said["data"] = {"resultType": "vector", "result": [sample]}
        return web.json_response(said)

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    store = QuickStore(tmp_path / "hotplate.db")
    async with TestServer(app) as server:
        prometheus = Prometheus(str(server.make_url("/")))
        world = World(store, FakeEngine(), prometheus)
        async with running(world):
            made = store.deployments.create(
                world.user,
                "echo",
                RevisionDraft(world.bento("v1"), config(0, 3)),
                labels(
                    **{
                        "hotplate/binary-window-s": "0",
                        "autoscaling/max_replicas": "2",
                        "autoscaling/queries": RAY,
                    }
                ),
            )
            world.controller.poke(made.id)
            await until(lambda: "QueryRewritten" in [e.kind for e in store.history.events(made.id)])
            await until(lambda: world.status(made) == "scaled-to-zero")
            value = "3"
            await until(lambda: len(world.engine.found) == 2)
            said_so = "0 of 2: a query returns 3"
            await until(lambda: store.history.decisions(made.id)[0].reason == said_so)
            value = "NaN"
            await until(lambda: "it stays on" in store.history.decisions(made.id)[0].reason)
            assert len(world.engine.found) == 2
            value = "refused"
            await until(lambda: "QueryInvalid" in [e.kind for e in store.history.events(made.id)])
            assert len(world.engine.found) == 2
            value = "0"
            await until(lambda: not world.engine.found)
            await until(lambda: "QueryAnswered" in [e.kind for e in store.history.events(made.id)])
        await prometheus.close()
    store.close()


async def test_a_restarted_control_plane_goes_on_with_the_silence_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LEARNT_EVERY_S", 0.0)
    store = QuickStore(tmp_path / "hotplate.db")
    prometheus = Silent()
    world = World(store, FakeEngine(), prometheus)
    async with running(world):
        bento = world.bento("v1")
        made = store.deployments.create(
            world.user, "echo", RevisionDraft(bento, config(0, 3)), labels()
        )
        world.controller.poke(made.id)
        name = f"decider/{made.uid}/Echo"
        await until(lambda: silence(store, name).get("silent_s") is not None)
    kept = silence(store, name)
    assert (kept["on"], kept["queries"]) == (True, [UNACKED, READY, RAY])
    # Nearly half an hour of silence, of which the last was known a minute ago.
    earlier = kept | {"silent_s": 1795.0, "at": kept["at"] - 60}
    store.learnt.put(name, {"binary": earlier})
    world = World(store, FakeEngine(survivors=world.engine), prometheus)
    async with running(world):
        await until(lambda: not world.engine.found)
        await until(
            lambda: "all queries have been 0 for 18" in store.history.decisions(made.id)[0].reason
        )
        store.deployments.update(made.id, RevisionDraft(bento, config(1, 3)), labels=[])
        world.controller.poke(made.id)
        await until(lambda: bool(world.engine.found) and not silence(store, name))
    store.close()


@pytest.mark.parametrize("at", [None, "then", math.nan, math.inf])
def test_what_is_kept_from_a_time_that_is_none_is_not_used(at: object) -> None:
    """JSON has NaN and Infinity, too."""
    found = switched(Scaling(), {"binary": {"on": True, "queries": ["x"], "at": at}})
    assert found.decision.desired == 0


def test_queries_that_are_taken_away_and_come_back_do_not_go_on_with_their_silence() -> None:
    scaling = Scaling()
    switched(scaling, {}, live=1, now=0.0)
    assert switched(scaling, {}, live=1, now=1800.0).decision.desired == 0
    scaling.unswitch(1)
    assert switched(scaling, {}, live=1, now=9000.0).decision.desired == 1


def switched(
    scaling: Scaling, memory: dict[str, Any], live: int = 0, now: float = 0.0
) -> Recommendation:
    """What is recommended while the query says 0."""
    key = WorkloadKey("acme", "train", 1, "Train")
    binary = binary_of(labels(**{"autoscaling/queries": "x"}))
    assert binary is not None
    recommendation = Recommendation(
        key, Decision(live, lambda: "", Cause.KEPT, None), Demand(), Replicas(live)
    )
    return scaling.switch(
        1, binary, [Reading(0.0, at=now)], recommendation, busy=0, now=now, memory=memory, wall=1e9
    )


class Silent(Prometheus):
    """Says 0 to everything."""

    def __init__(self) -> None:
        super().__init__("")

    async def read(self, query: str, up: str) -> Reading:
        return Reading(0.0, at=asyncio.get_running_loop().time())


def silence(store: QuickStore, name: str) -> dict[str, Any]:
    return (store.learnt.get(name) or {}).get("binary") or {}


async def test_what_queries_decide_is_not_reserved_by_min_replicas(cloud: Cloud) -> None:
    await cloud.push_bento()
    cloud.store.quotas.set("acme", {"replicas": 1})
    scaling = {"services": {"Echo": {"scaling": {"min_replicas": 2, "max_replicas": 2}}}}
    with pytest.raises(Refused, match="always needs 2 replicas"):
        await cloud.deploy("usual", **scaling)
    await cloud.deploy("switched", labels=labels(), **scaling)


async def test_annotations_come_as_labels_word_for_word_and_wrong_ones_are_refused(
    cloud: Cloud,
) -> None:
    await cloud.push_bento()
    made = await cloud.deploy(labels=labels())
    assert made["labels"] == labels()
    for wrong, complaint in (
        ({"autoscaling/queries": " & "}, "has no query"),
        ({"autoscaling/enabled": "yes"}, "is 'true' or 'false', not 'yes'"),
        ({"autoscaling/max_replicas": "-1"}, "is 0 to 999"),
        ({"autoscaling/querys": "x"}, "did you mean 'autoscaling/queries'"),
        ({"hotplate/binary-target": "job=x"}, "label matchers"),
    ):
        with pytest.raises(Refused, match=r"400.*labels.*" + complaint.replace("(", r"\(")):
            await cloud.deploy("other", labels=labels(**wrong))
    check_label_settings([{"key": "hotplate/binary-target", "value": 'job="rabbitmq"'}], "labels")
