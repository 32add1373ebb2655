"""What the stock client is told while it waits for a roll-out, and what others are."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.process.logfile import trim
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.controller.interface import Rollout
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.patience import PATIENCE_S, until

ONE = "/api/v2/deployments/echo"
STOCK = {"X-Bentoml-Version": "1.4.39"}
SELECTOR = "selector=yatai.ai/bento-repository=echo,yatai.ai/bento=v1"
BUILDERS = f"/ws/v1/clusters/default/pods?organization_name=acme&namespace=default&{SELECTOR}"
TAIL = "/ws/v1/clusters/default/tail?namespace=default&timestamps=false&pod_name="
ASKED = {"type": "data", "payload": {"id": "1", "follow": True, "tail_lines": 2}}
WAITS = Rollout("it waits: there is no room", held_up=True)


@pytest.fixture
async def cloud(store: Store, blobs: BlobStore, controller: FakeController) -> AsyncIterator[Cloud]:
    app = make_app(store, blobs, controller, ApiSettings(outcome_wait_s=5, held_up_s=0.01))
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        await cloud.push_bento()
        yield cloud
        await controller.settled()


async def status(cloud: Cloud, **headers: str) -> str:
    """What a question of the stock client is answered."""
    async with cloud.http.get(ONE, headers=headers or STOCK) as answer:
        said: str = (await answer.json())["status"]
        return said


async def ends(controller: FakeController) -> None:
    """What was deployed last has an outcome now, in the store too."""
    controller.goes_on(None)
    controller.poke(controller.poked[-1])
    await controller.settled()


async def pods(cloud: Cloud, path: str = BUILDERS) -> Any:
    async with cloud.http.ws_connect(path) as socket:
        return await socket.receive_json()


async def log(socket: ClientWebSocketResponse) -> tuple[str, str]:
    """What it says until its end, and how it ends; each item is decoded alone, as the client
    does."""
    text = ""
    async for message in socket:
        said = message.json()
        if said["type"] == "error" or said["message"] == "EOF":
            return text, said["message"]
        text += "".join(base64.b64decode(item).decode() for item in said["payload"]["items"])
    raise AssertionError(f"closed after {text!r}")


async def piece(socket: ClientWebSocketResponse) -> str:
    """The next text that it says."""
    (item,) = (await socket.receive_json())["payload"]["items"]
    return base64.b64decode(item).decode()


async def follow(cloud: Cloud, pod: str = "echo/builder") -> tuple[str, str]:
    async with cloud.http.ws_connect(TAIL + pod) as socket:
        await socket.send_json(ASKED)
        await socket.send_json({"type": "heartbeat"})
        return await log(socket)


async def test_who_waits_is_told_to_follow_the_log_while_something_holds_it_up(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.goes_on(WAITS)
    await cloud.deploy()
    assert await status(cloud) == "image-building"
    assert await status(cloud) == "image-building"  # of a second look, while it may follow yet
    said = await pods(cloud)
    assert [pod["name"] for pod in said["payload"]] == ["echo/builder"]
    following = asyncio.create_task(follow(cloud))
    controller.goes_on(Rollout("1 replica ready", over=True))
    text, end = await following
    assert text.splitlines()[-1] == "hotplate: 1 replica ready"
    assert end == "EOF"


async def test_a_roll_out_that_nothing_holds_up_is_waited_for(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.goes_on(Rollout("it is starting"))
    await cloud.deploy()
    asking = asyncio.create_task(status(cloud))
    async with asyncio.timeout(PATIENCE_S):
        while not controller.asked:  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0)
    await ends(controller)
    assert await asking == "running"


async def test_a_build_answers_the_first_question_and_its_end_the_next(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path
) -> None:
    long = ApiSettings(outcome_wait_s=59, held_up_s=59)
    app = make_app(store, blobs, controller, long)
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        await cloud.push_bento()
        controller.goes_on(Rollout("it is starting"))
        await cloud.deploy()
        asking = asyncio.create_task(status(cloud))
        await until(lambda: len(controller.asked) > 1)
        assert not asking.done()
        built = str(tmp_path / "build.log")
        controller.goes_on(Rollout("it is built", build_logs=(built,), held_up=True))
        assert await asking == "image-building"
        asking, before = asyncio.create_task(status(cloud)), len(controller.asked)
        await until(lambda: len(controller.asked) > before + 1)
        assert not asking.done()
        await ends(controller)
        assert await asking == "running"


async def test_a_failure_is_in_the_log_before_it_is_the_status(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.failure = "Echo: no module"
    await cloud.deploy()
    assert await status(cloud) == "image-building"
    text, end = await follow(cloud)
    assert text == "hotplate: Echo: no module\n  | last line\n"
    assert end == "EOF"
    assert await status(cloud) == "failed"


async def test_others_are_told_of_a_failure_at_once(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.failure = "Echo: no module"
    await cloud.deploy()
    assert await status(cloud, Accept="*/*") == "failed"


async def test_the_answer_that_ends_the_clients_reading_waits_until_all_is_read(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.goes_on(WAITS)
    await cloud.deploy()
    await status(cloud)
    async with cloud.http.ws_connect(TAIL + "echo/builder") as socket:
        await socket.send_json(ASKED)
        assert "no room" in await piece(socket)
        controller.failure = "Echo: no module"
        await ends(controller)
        asking = asyncio.create_task(status(cloud))
        text, _ = await log(socket)
        assert "Echo: no module" in text
        assert not asking.done(), "the client has not closed yet"
    assert await asking == "failed"


async def test_a_build_is_a_status_of_its_own_and_its_log_comes_from_its_first_line(
    cloud: Cloud, controller: FakeController, tmp_path: Path
) -> None:
    built = tmp_path / "build.log"
    whole = "one\ntwo\nthree k\N{CHEESE WEDGE}\n" * 20_000
    built.write_text(whole)
    controller.goes_on(Rollout("it is built", build_logs=(str(built),), held_up=True))
    await cloud.deploy()
    await controller.settled()
    assert (await cloud.call("GET", "/api/v2/deployments"))["items"][0]["status"] == (
        "image-building"
    )
    following = asyncio.create_task(follow(cloud))
    async with cloud.http.ws_connect(TAIL + "echo/builder") as socket:
        await socket.send_json(ASKED)
        text = ""
        while not text.endswith("hotplate: it is built\n" + whole):
            said = await socket.receive_json()
            text += "".join(base64.b64decode(item).decode() for item in said["payload"]["items"])
        with built.open("a") as file:
            file.write("four")
        assert await piece(socket) == "four"
    controller.goes_on(Rollout("1 replica ready", over=True))
    text, _ = await following
    assert text.endswith("four\nhotplate: 1 replica ready\n")


async def test_of_two_deployments_of_a_bento_the_one_asked_for_last_comes_first(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.goes_on(WAITS)
    for name in ("one", "two"):
        await cloud.deploy(name)
    for name in ("two", "one", "two"):
        await cloud.http.get(f"/api/v2/deployments/{name}", headers=STOCK)
        assert (await pods(cloud))["payload"][0]["name"] == f"{name}/builder"


async def test_replicas_are_pods_whose_logs_can_be_followed(
    cloud: Cloud, controller: FakeController, tmp_path: Path
) -> None:
    await cloud.deploy()
    await cloud.call("GET", ONE)
    controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready", "reason": ""}]
    said = await pods(cloud, "/ws/v2/deployments/echo/pods?organization_name=acme&cluster=")
    builder, replica = said["payload"]
    assert builder["labels"]["yatai.ai/is-bento-image-builder"] == "true"
    labels = replica["labels"]
    assert labels["yatai.ai/bento-function-component-type"] == "api-server"
    assert (replica["status"]["phase"], replica["runner_name"]) == ("Running", "Echo")
    file = controller.log_files["r-1"] = tmp_path / "log"
    file.write_text("one\ntwo \x1b[31m\nthree\n")
    async with cloud.http.ws_connect(TAIL + replica["name"]) as socket:
        await socket.send_json(ASKED)
        assert await piece(socket) == "two \nthree\n"
        controller.replicas = []
        assert await log(socket) == ("", "EOF")


async def test_a_replica_s_log_is_whole_to_its_last_line_and_ends_with_the_replica(
    cloud: Cloud, controller: FakeController, tmp_path: Path
) -> None:
    await cloud.deploy()
    await cloud.call("GET", ONE)
    controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready", "reason": ""}]
    file = controller.log_files["r-1"] = tmp_path / "log"
    file.write_text("begun\n")
    async with cloud.http.ws_connect(TAIL + "echo/r-1") as socket:
        await socket.send_json(ASKED)
        assert await piece(socket) == "begun\n"
        # More at once than the client asked for at first, all alike, and a character in two.
        printed = "tick k\N{CHEESE WEDGE}\n" * 2000
        half = len(printed.encode()) - 3
        with file.open("ab") as log_file:
            log_file.write(printed.encode()[:half])
        text = await piece(socket)
        trim(file, max_bytes=10_000, kept_bytes=6000)  # as it is cut when it grows too long
        with file.open("ab") as log_file:
            log_file.write(printed.encode()[half:] + b"last words\n")
        file.rename(tmp_path / "ended.log")
        controller.replicas = []
        rest, end = await log(socket)
    assert (text + rest, end) == (printed + "last words\n", "EOF")


async def test_logs_are_asked_for_with_a_token_and_are_the_organizations_own(
    cloud: Cloud, controller: FakeController, store: Store
) -> None:
    await cloud.deploy()
    await cloud.call("GET", ONE)
    controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready", "reason": ""}]
    of_deployment = "/ws/v2/deployments/echo/pods"
    for path in (BUILDERS, of_deployment, TAIL + "echo/builder"):
        with pytest.raises(WSServerHandshakeError) as refused:
            await cloud.http.ws_connect(path, headers={"X-YATAI-API-TOKEN": "wrong"})
        assert refused.value.status == 401
    async with Cloud(cloud.server, store, "other") as other:
        assert (await pods(other))["payload"] == []
        assert (await pods(other, of_deployment))["type"] == "error"
        for pod in ("echo/builder", "echo/r-1"):
            text, end = await follow(other, pod)
            assert (text, "'echo'" in end) == ("", True)
    text, end = await follow(cloud, "echo/r-2")
    assert "has no replica 'r-2'" in end


async def test_what_is_no_question_is_refused_with_a_sentence(cloud: Cloud) -> None:
    await cloud.deploy()
    for asked in ("no JSON", "[]", '{"payload": 3}', '{"payload": {"tail_lines": "x"}}'):
        async with cloud.http.ws_connect(TAIL + "echo/builder") as socket:
            await socket.send_str(asked)
            said = await socket.receive_json()
            assert (said["type"], bool(said["message"])) == ("error", True)


async def test_a_tail_ends_with_its_deployment(cloud: Cloud, controller: FakeController) -> None:
    controller.goes_on(WAITS)
    await cloud.deploy()
    async with cloud.http.ws_connect(TAIL + "echo/builder") as socket:
        await socket.send_json(ASKED)
        await socket.receive_json()
        controller.goes_on(None)
        await cloud.call("DELETE", ONE)
        _, end = await log(socket)
        assert end == "EOF"
        await socket.close()
        assert (await socket.receive()).type is WSMsgType.CLOSED
