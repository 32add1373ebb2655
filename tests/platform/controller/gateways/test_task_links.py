"""Tasks of a gateway that is out of sight: offered again when it has ended, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hotplate.platform.controller.gateways.task_links import TaskLinks
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind, TaskContent, Turn
from hotplate.platform.store.task_state import Start
from tests.support.patience import PATIENCE_S, until

LOST_S = 0.1
TASK = "0123"
FLAPS = 10
LINE = "/internal/tasks/line"


class Pods:
    """Which gateways may run where nobody sees them."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.asked = 0
        """How often somebody asked for one of these."""
        self.come: set[str] = set()
        """All of which it was said that they have come."""

    def may_go_on(self, gateway: str, come: Collection[str]) -> bool:
        self.asked += gateway in self.there
        self.come |= set(come)
        return gateway in self.there


class Lines:
    """The control plane's side, and gateways that connect to it."""

    def __init__(
        self, links: TaskLinks, client: TestClient[web.Request, web.Application], store: Store
    ) -> None:
        self.links, self._client, self._store = links, client, store

    async def line(self, gateway: str) -> aiohttp.ClientWebSocketResponse:
        line = await self._client.ws_connect(f"{LINE}?gateway={gateway}")
        await line.send_json({"waiting": []})
        return line

    async def start(self, gateway: str) -> None:
        tasks = self._store.tasks
        await tasks.run(tasks.change, TASK, Start(gateway), self.links.is_gone)


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
async def lines(store: Store, pods: Pods) -> AsyncIterator[Lines]:
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    store.artifacts.ensure_repository(user.organization.id, Kind.BENTO, "echo")
    bento = store.artifacts.create(user.organization.id, Kind.BENTO, "echo", ArtifactDraft("v1"))
    store.deployments.create(user, "echo", RevisionDraft(bento.id, {"services": {}}))
    content = TaskContent(b"", b"", 0)
    store.tasks.add(TASK, "acme/echo", "/toil", content, Turn("acme", 3, ""))
    links = TaskLinks(store.tasks, LOST_S, pods.may_go_on)
    app = web.Application()
    app.router.add_get(LINE, links.handle)
    async with TestClient(TestServer(app)) as client:
        yield Lines(links, client, store)
        await links.close()


async def offered(line: aiohttp.ClientWebSocketResponse) -> bool:
    """Whether the next thing that it is told is that it may run what another one had."""
    async with asyncio.timeout(PATIENCE_S):
        (one,) = (await line.receive_json())["run"]
    return bool(one["lost"])


async def test_a_task_is_offered_again_once_its_gateway_cannot_run_out_of_sight(
    lines: Lines, pods: Pods
) -> None:
    pods.there = {"g1"}
    await (first := await lines.line("g1")).receive_json()
    await lines.start("g1")
    second = await lines.line("g2")
    await first.close()
    await until(lambda: pods.asked >= 3)  # it is looked for again and again
    assert not lines.links.is_gone("g1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * LOST_S):
            await second.receive_json()
    assert pods.come == {"g1", "g2"}


async def test_its_pod_has_gone(lines: Lines, pods: Pods) -> None:
    pods.there = {"g1"}
    await (first := await lines.line("g1")).receive_json()
    await lines.start("g1")
    second = await lines.line("g2")
    await first.close()
    await until(lambda: pods.asked >= 3)
    pods.there = set()
    assert await offered(second)
    assert lines.links.is_gone("g1")
    await lines.start("g2")


async def test_a_gateway_is_asked_about_that_nobody_has_seen_since_the_start(
    lines: Lines, pods: Pods
) -> None:
    """The control plane was restarted while a gateway was out of sight."""
    pods.there = {"g1"}
    await lines.start("g1")
    line = await lines.line("g2")
    await until(lambda: pods.asked >= 2)
    pods.there = set()
    assert await offered(line)


async def test_looks_do_not_become_more_with_gateways_that_come_and_go(
    lines: Lines, pods: Pods
) -> None:
    pods.there = {"g1"}
    await (first := await lines.line("g1")).receive_json()
    await lines.start("g1")
    await first.close()
    for number in range(FLAPS):
        await (await lines.line(f"f{number}")).close()
    await asyncio.sleep(3 * LOST_S)
    before = pods.asked
    await asyncio.sleep(5 * LOST_S)
    assert 1 <= pods.asked - before <= FLAPS


async def test_of_one_that_comes_back_nothing_is_offered(lines: Lines, pods: Pods) -> None:
    pods.there = {"g1"}
    await (first := await lines.line("g1")).receive_json()
    await lines.start("g1")
    second = await lines.line("g2")
    await first.close()
    await until(lambda: pods.asked >= 2)
    back = await lines.line("g1")
    await until(lambda: not lines.links.is_gone("g1"))
    pods.there = set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * LOST_S):
            await second.receive_json()
    await back.close()
    assert await offered(second)
