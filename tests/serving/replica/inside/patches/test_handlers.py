"""What the worker tells a gateway of its handlers: raw callers of a replica of two processes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotplate.serving.replica.inside.patches.handlers import (
    STARTED,
    HandlerWatch,
)
from hotplate.serving.replica.inside.patches.running import TASK, WEBSOCKET, Running
from tests.support.gateway.callers import Caller
from tests.support.patience import until
from tests.support.replica.bentos import STREAM, write_bento
from tests.support.replica.replicas import Replica, started, workload

SOURCE = (
    """
    import asyncio, os, time
    import bentoml
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute

    async def lingering(websocket):
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)
        print("left", flush=True)
        while not os.path.exists(os.environ["GATE"]):
            await asyncio.sleep(0.01)

    @bentoml.asgi_app(Starlette(routes=[WebSocketRoute("/ws", lingering)]), path="/mounted")
    @bentoml.service(workers=2, threads=2)
    class Echo:
        @bentoml.api
        def wait(self, gate: str) -> str:
            return open(gate).read()

        @bentoml.api
        async def crash(self):
            os._exit(7)
"""
    + STREAM
)


NONE: Mapping[str, str] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("handlers")


@pytest.fixture(scope="module")
def replica(folder: Path) -> Iterator[Replica]:
    bento = write_bento(folder / "bento", SOURCE)
    served = workload(config={"workers": 2}, env={"GATE": str(folder / "websocket")})
    with started(folder, bento, served) as replica:
        replica.get("/readyz")
        yield replica


async def post(
    replica: Replica, path: str, headers: Mapping[str, str] = NONE, **fields: str
) -> Caller:
    caller = await Caller.to(int(replica.url.rpartition(":")[2]))
    body = json.dumps(fields).encode()
    caller.send(path, method="POST", body=body, Content_Type="application/json", **headers)
    return caller


async def at_gate(replica: Replica, gate: Path, **headers: str) -> Caller:
    """Its handler ends when something is written to the gate, which is made for it."""
    os.mkfifo(gate)
    return await post(replica, "/wait", headers, gate=str(gate))


async def said(replica: Replica) -> dict[str, int]:
    """What it says of the handlers that run in it."""
    answer: dict[str, int] = json.loads(await asyncio.to_thread(replica.get, "/hotplate/running"))
    return answer


async def running(replica: Replica) -> int:
    return (await said(replica))["running"]


async def until_running(replica: Replica, count: int) -> None:
    while await running(replica) != count:  # noqa: ASYNC110 - the test's timeout ends this
        await asyncio.sleep(0.01)


async def test_a_post_says_that_its_handler_begins_and_a_read_does_not(
    replica: Replica, folder: Path
) -> None:
    gate = folder / "begin"
    caller = await at_gate(replica, gate)
    assert await caller.reader.readexactly(len(STARTED)) == STARTED
    assert await running(replica) == 1
    await asyncio.to_thread(gate.write_text, "through")
    assert (await caller.answer()).body == b"through"
    assert (await caller.ask("/readyz")).status == 200
    caller.leave()


async def test_handlers_of_all_processes_are_counted(replica: Replica, folder: Path) -> None:
    gates = [folder / f"gate-{number}" for number in range(6)]
    callers = [await at_gate(replica, gate) for gate in gates]
    await until_running(replica, len(gates))
    # The two processes have four threads; which of them a connection gets is the kernel's choice.
    writers = [asyncio.to_thread(gate.write_text, "through") for gate in gates]
    await asyncio.gather(*writers)
    for caller in callers:
        assert (await caller.head())[0] == 100
        assert (await caller.answer()).body == b"through"
        caller.leave()
    await until_running(replica, 0)  # a process counts a handler after its response is sent


async def test_what_was_asked_back_does_not_begin_in_either_process(
    replica: Replica, folder: Path
) -> None:
    gates = [folder / f"asked-{number}" for number in range(5)]
    ids = [f"{number:016x}" for number in range(1, 6)]
    begun = await at_gate(replica, gates[0], Hotplate_Passed=ids[0])
    assert await begun.reader.readexactly(len(STARTED)) == STARTED
    answer = await asyncio.to_thread(replica.get, f"/hotplate/recall/{','.join(ids)}")
    assert json.loads(answer) == {"begun": ids[:1]}
    late = [
        await at_gate(replica, gate, Hotplate_Passed=passed)
        for gate, passed in zip(gates[1:], ids[1:], strict=True)
    ]
    for caller in late:
        refused = await caller.answer()
        assert (refused.status, refused.error["code"]) == (409, "asked_back")
    assert await running(replica) == 1
    await asyncio.to_thread(gates[0].write_text, "through")
    assert (await begun.answer()).body == b"through"
    for caller in (begun, *late):
        caller.leave()


async def test_both_processes_together_begin_no_more_than_there_are_slots(
    replica: Replica, folder: Path
) -> None:
    gates = [folder / f"slot-{number}" for number in range(4)]
    callers = [await at_gate(replica, gate, Hotplate_Replica=f"{replica.uid} 3") for gate in gates]
    said = [await caller.reader.readline() for caller in callers]
    assert sorted(said) == [b"HTTP/1.1 100 Full\r\n", *[STARTED.splitlines(True)[0]] * 3]
    assert await running(replica) == 3
    begun = [gate for gate, line in zip(gates, said, strict=True) if b"Started" in line]
    await asyncio.gather(*(asyncio.to_thread(gate.write_text, "through") for gate in begun))
    for caller in callers:
        caller.leave()
    await until_running(replica, 0)


async def test_the_connection_of_a_caller_that_ended_its_side_ends_with_the_handler(
    replica: Replica, folder: Path
) -> None:
    gate = folder / "end"
    caller = await at_gate(replica, gate)
    assert (await caller.head())[0] == 100
    caller.writer.write_eof()
    ended = asyncio.create_task(caller.reader.read())
    await asyncio.sleep(0.1)
    assert not ended.done()
    assert await running(replica) == 1
    await asyncio.to_thread(gate.write_text, "through")
    assert await ended == b""
    assert await running(replica) == 0
    caller.leave()


async def test_an_abandoned_stream_is_cancelled_and_its_connection_ends_after_it(
    replica: Replica, folder: Path
) -> None:
    cancelled = folder / "cancelled"
    caller = await post(replica, "/stream", cancelled=str(cancelled))
    assert (await caller.head())[0] == 100
    assert (await caller.head())[0] == 200
    caller.writer.write_eof()
    await caller.reader.read()
    assert cancelled.exists()
    caller.leave()


async def test_the_connection_of_a_websocket_ends_with_its_handler(
    replica: Replica, folder: Path
) -> None:
    caller = await Caller.to(int(replica.url.rpartition(":")[2]))
    caller.send(
        "/mounted/ws",
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
    )
    assert (await caller.head())[0] == 101
    caller.writer.write_eof()
    ended = asyncio.create_task(caller.reader.read())
    await until(lambda: "left" in replica.log.read_text())
    assert await said(replica) == {"running": 1, "websockets": 1, "tasks": 0}
    assert not ended.done()
    (folder / "websocket").touch()
    await ended
    await until_running(replica, 0)
    assert (await said(replica))["websockets"] == 0
    caller.leave()


async def test_a_plain_handler_that_runs_in_place_of_a_websockets_says_so(replica: Replica) -> None:
    """As for another protocol, or where no library for WebSockets is installed."""
    caller = await Caller.to(int(replica.url.rpartition(":")[2]))
    caller.send("/schema.json", Connection="Upgrade", Upgrade="another")
    assert await caller.reader.readexactly(len(STARTED)) == STARTED
    assert (await caller.answer()).status == 200
    caller.leave()


def test_a_running_count_is_shared_by_those_that_have_its_memory() -> None:
    fd = Running.share(2)
    one, two = Running(1, 2, os.dup(fd)), Running(2, 2, fd)
    one.begin()
    two.begin(WEBSOCKET)
    two.begin()
    one.end()
    assert (one.count(), two.count()) == (2, 2)
    assert (one.count(WEBSOCKET), two.count(TASK)) == (1, 0)


class Cycle:
    """A server's object for a request whose connection the gateway has ended already."""

    transport = SimpleNamespace(is_closing=lambda: True)

    async def receive(self) -> dict[str, str]:
        return {"type": "http.disconnect"}


async def test_a_request_that_was_given_up_before_it_began_does_not_begin() -> None:
    async def application(*_: object) -> None:
        raise AssertionError("it has begun")

    running = Running()
    scope = {"type": "http", "method": "POST", "raw_path": b"/x", "headers": []}
    await HandlerWatch(application, running, bytes)(scope, Cycle().receive, None)
    assert running.count() == 0


async def test_a_handler_that_ends_its_process_at_once_had_begun(replica: Replica) -> None:
    """The last one: it ends the replica."""
    caller = await post(replica, "/crash")
    assert await caller.reader.readexactly(len(STARTED)) == STARTED
    assert await caller.ended()
    assert await asyncio.to_thread(replica.ended) == 1
    caller.leave()
