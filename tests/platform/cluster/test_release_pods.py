"""What is seen of the pods of a release: which there are, and which gateways and agents run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotplate.deploy.cluster.kinds import Ref
from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.platform.cluster.release_pods import ReleasePods
from tests.support.cache.agents import agent
from tests.support.deploy.cluster import AT, SERVING, ClusterInMemory
from tests.support.deploy.cluster_server import ClusterServer
from tests.support.patience import until
from tests.support.ports import free_port

TOKEN = "of the cluster"
POD_NAME = "hotplate-gateway-84dbd78bfb-lcf4s"
OLD = f"000001732000000-0badcafe-{POD_NAME}"
NEW = f"000001732000900-00c0ffee-{POD_NAME}"
"""Ids of two gateways of that pod, as `NetworkFleet` makes them."""


@pytest.fixture
async def server() -> AsyncIterator[ClusterServer]:
    async with ClusterServer(ClusterInMemory()).running() as made:
        yield made


def put(server: ClusterServer, name: str, status: Any = SERVING, node: str = "node1") -> Ref:
    part = "-".join(name.split("-")[:2])
    return server.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "hotplate-agents" if part == "hotplate-agent" else "hotplate",
                "labels": {
                    "app.kubernetes.io/part-of": "hotplate",
                    "app.kubernetes.io/name": part,
                },
            },
            "spec": {"nodeName": node} if node else {},
            "status": status,
        }
    )


@asynccontextmanager
async def seen(server: ClusterServer, agent_port: int = 0) -> AsyncIterator[ReleasePods]:
    api = server.api()
    pods = ReleasePods(api, "hotplate", TOKEN, agent_port=agent_port)
    pods.start()
    try:
        yield pods
    finally:
        await pods.close()
        await api.close()


def names(pods: ReleasePods) -> Sequence[str]:
    return [role["name"] for role in pods.roles()]


async def test_each_pod_is_shown_with_its_node_and_how_it_ended_before(
    server: ClusterServer,
) -> None:
    ended = {
        "name": "gateway",
        "restartCount": 2,
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T01:00:00Z"}},
        "lastState": {"terminated": {"reason": "OOMKilled", "message": "a line\nthe last one\n"}},
    }
    put(server, POD_NAME, {"startTime": AT, "containerStatuses": [ended]})
    put(server, "hotplate-agent-x", {"startTime": AT}, node="node2")
    put(server, "hotplate-control-plane-y", {}, node="")
    async with seen(server) as pods:
        await until(lambda: len(pods.roles()) == 3)
        said = {role.pop("name"): role for role in pods.roles()}
    new_year = 1767225600.0
    silent = {"restarts": 0, "last_end": "", "runs": False}
    assert said == {
        "hotplate-agent-x": {"node": "node2", "since": new_year, **silent},
        "hotplate-control-plane-y": {"node": "", "since": 0.0, **silent},
        POD_NAME: {
            "node": "node1",
            "since": new_year + 3600,
            "restarts": 2,
            "last_end": "the last one",
            "runs": True,
        },
    }


async def test_one_that_was_evicted_is_no_part_of_it(server: ClusterServer) -> None:
    put(server, POD_NAME, {"phase": "Failed", "reason": "Evicted"})
    put(server, "hotplate-gateway-84dbd78bfb-other")
    async with seen(server) as pods:
        await until(lambda: names(pods) == ["hotplate-gateway-84dbd78bfb-other"])
        assert not pods.may_go_on(OLD, [])


async def test_a_gateway_may_go_on_while_its_pod_is_there(server: ClusterServer) -> None:
    pod = put(server, POD_NAME)
    async with seen(server) as pods:
        await until(lambda: pods.roles())
        assert pods.may_go_on(OLD, [])
        assert pods.may_go_on(OLD, [OLD, NEW.replace("lcf4s", "other")])
        assert not pods.may_go_on(OLD, [OLD, NEW]), "the container has begun anew"
        assert pods.may_go_on(NEW, [OLD, NEW])
        server.cluster.end(pod)
        await until(lambda: pods.roles())
        assert pods.may_go_on(OLD, []), "a node that is lost keeps its pods for long"
        server.cluster.delete(pod)
        await until(lambda: not pods.roles())
        assert not pods.may_go_on(OLD, [])
        assert not pods.may_go_on("", [])
        assert not pods.may_go_on("of-one-machine", [])


async def test_nobody_is_taken_for_gone_before_the_pods_have_been_seen(
    server: ClusterServer,
) -> None:
    put(server, POD_NAME)
    api = server.api()
    pods = ReleasePods(api, "hotplate", TOKEN)
    assert pods.may_go_on(OLD, []) and not pods.may_go_on(OLD, [NEW])
    await api.close()


async def test_another_thread_may_ask_while_pods_come_and_go(server: ClusterServer) -> None:
    """The store's thread does."""
    put(server, POD_NAME)
    wrong: list[object] = []
    over = threading.Event()
    async with seen(server) as pods:
        await until(lambda: pods.roles())

        def ask() -> None:
            while not over.is_set():
                try:
                    if not pods.may_go_on(OLD, []):
                        wrong.append("it is there all the time")
                except RuntimeError as error:
                    wrong.append(error)

        asking = asyncio.create_task(asyncio.to_thread(ask))
        for number in range(200):
            put(server, f"hotplate-agent-{number}")
        await until(lambda: len(pods.roles()) == 201)
        over.set()
        await asking
    assert wrong == []


async def test_an_agent_that_does_not_answer_is_named_by_its_node(
    server: ClusterServer, tmp_path: Path
) -> None:
    port = free_port()
    status = {**SERVING, "phase": "Running", "podIP": "127.0.0.1"}
    async with seen(server, port) as pods:
        assert (await pods.lost_agents(), await pods.agent_troubles()) == ("", "")
        put(server, "hotplate-agent-x", status, node="node2")
        put(server, "hotplate-agent-y", {**status, "phase": "Pending"}, node="node3")
        put(server, POD_NAME, status)
        await until(lambda: len(pods.roles()) == 3)
        assert (await pods.lost_agents()).startswith("the agent of node2 does not answer: ")
        assert await pods.agent_troubles() == ""
        assert await pods.holdings() == {}
        async with agent(tmp_path, port=port, token=TOKEN):
            assert await pods.holdings() == {"node2": []}
            assert await pods.lost_agents() == ""
            assert (await pods.agent_troubles(), await pods.refused_volumes()) == ("", [])


async def test_agents_are_told_who_reads_their_metrics(
    server: ClusterServer, tmp_path: Path
) -> None:
    port = free_port()
    reader = MetricsReader(sha256(b"reads").hexdigest())
    async with (
        seen(server, port) as pods,
        agent(tmp_path, port=port, token=TOKEN) as client,
        aiohttp.ClientSession() as http,
    ):
        put(
            server,
            "hotplate-agent-x",
            {**SERVING, "phase": "Running", "podIP": "127.0.0.1"},
        )
        await until(lambda: pods.roles())

        async def status() -> int:
            headers = {"Authorization": "Bearer reads"}
            async with http.get(f"{client.url}/metrics", headers=headers) as answer:
                return answer.status

        assert await status() == 401
        pods.install_readers([reader])
        await until_status(status, 200)
        pods.install_readers([])
        await until_status(status, 401)


async def until_status(status: Any, wanted: int) -> None:
    async def is_so() -> bool:
        return bool(await status() == wanted)

    await until(is_so)
