"""Gateways that do not see each other, in front of one real worker: it lets no more begin than it
has slots, and nothing that is for another replica."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.gateway.fleet.discovery import SETTING
from hotplate.serving.gateway.protocol.routes import TASKS, ReplicaRoute, Route
from hotplate.serving.gateway.replicas.fence import FenceLines
from tests.support.gateway.callers import Answer, Caller
from tests.support.gateway.control_planes import TOKEN, ControlPlane
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Replica, started, workload

SLOTS = 2
EACH = 24
"""Requests of each gateway's callers, who all ask at once."""
SOURCE = """
    import asyncio, os
    import bentoml
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute

    async def held(websocket):
        await websocket.accept()
        while not os.path.exists(os.environ["GATE"]):
            await asyncio.sleep(0.01)
        await websocket.close()

    @bentoml.asgi_app(Starlette(routes=[WebSocketRoute("/ws", held)]), path="/mounted")
    @bentoml.service(traffic={"concurrency": 2})
    class Echo:
        def __init__(self):
            self.running = 0

        @bentoml.api
        async def work(self, note: str, seconds: float = 0.02) -> int:
            self.running += 1
            try:
                with open(note, "a") as file:
                    file.write("%d\\n" % self.running)
                await asyncio.sleep(seconds)
                return self.running
            finally:
                self.running -= 1

        @bentoml.api
        async def stream(self, gate: str):
            yield "begun"
            while not os.path.exists(gate):
                await asyncio.sleep(0.01)

        @bentoml.api
        def size(self, text: str) -> int:
            return len(text)

        @bentoml.api
        def headers(self, ctx: bentoml.Context) -> list:
            return sorted(ctx.request.headers)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut")


@pytest.fixture(scope="module")
def worker(folder: Path) -> Iterator[Replica]:
    bento = write_bento(folder / "bento", SOURCE)
    with started(folder, bento, workload(env={"GATE": str(folder / "gate")})) as worker:
        worker.get("/readyz")
        yield worker


def replica(worker: Replica, slots: int = SLOTS, **changes: Any) -> ReplicaRoute:
    address = worker.url.removeprefix("http://")
    route = ReplicaRoute("r1", address, slots, worker=True, uid=worker.uid)
    return replace(route, **changes)


async def post(port: int, path: str, **fields: object) -> Caller:
    caller = await Caller.to(port)
    body = json.dumps(fields).encode()
    caller.send(path, method="POST", body=body, Content_Type="application/json")
    return caller


async def ask(port: int, path: str, **fields: object) -> Answer:
    caller = await post(port, path, **fields)
    try:
        return await caller.answer()
    finally:
        caller.leave()


@contextlib.asynccontextmanager
async def cut_gateways(
    folder: Path, patch: pytest.MonkeyPatch, route: Route
) -> AsyncIterator[tuple[int, int]]:
    """The ports of two gateways, each with a control plane of its own and nowhere to meet."""
    (folder / "token").write_text(TOKEN)
    async with contextlib.AsyncExitStack() as stack:
        ports = []
        for name in ("one", "two"):
            plane = ControlPlane()
            await plane.start()
            stack.push_async_callback(plane.stop)
            patch.setenv(SETTING, str(folder / f"meeting-{name}"))
            state = f"--state={folder / name}"
            flags = (f"--control-plane={plane.url}", f"--token-file={folder / 'token'}", state)
            gateway = await stack.enter_async_context(GatewayProcess.start(folder, *flags))
            await gateway.ready()
            ports.append(free_port())
            await follow(plane, replace(route, port=ports[-1]))
            assert (await gateway.admin("/healthz"))[1]["peers"] == []
        yield ports[0], ports[1]


async def follow(plane: ControlPlane, route: Route) -> None:
    """Has the gateway of the control plane serve the route."""
    await until(lambda: plane.sockets)
    await plane.send(1, route)
    await until(lambda: plane.reports and plane.reports[-1].version == 1)


async def test_under_overload_by_two_gateways_no_more_run_than_there_are_slots(
    worker: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note"
    route = Route("acme/echo", "127.0.0.1", 0, (replica(worker),))
    async with cut_gateways(tmp_path, monkeypatch, route) as ports:
        answers = await asyncio.gather(
            *(ask(port, "/work", note=str(note)) for port in ports for _ in range(EACH))
        )
    assert [answer.status for answer in answers] == [200] * 2 * EACH
    seen = [int(line) for line in note.read_text().split()]
    assert len(seen) == 2 * EACH, "each ran once"
    assert max(seen) == SLOTS, "both slots were used, and no third one"


async def test_what_waits_for_a_slot_at_the_worker_goes_back_and_keeps_its_deadline(
    kitchen: Kitchen, worker: Replica, folder: Path, tmp_path: Path
) -> None:
    """Slots of another gateway's: whoever asks the worker past this one."""
    gate, own = tmp_path / "gate", int(worker.url.rpartition(":")[2])
    others = [await taking_a_slot(own, worker, gate) for _ in range(SLOTS)]
    await kitchen.serve(replicas=(replica(worker),), timeout_s=10)
    waits = await kitchen.send("/work", method="POST", body=body_of(tmp_path / "note"))
    late = await kitchen.send(
        "/work",
        method="POST",
        body=body_of(tmp_path / "late"),
        X_Request_Timeout_Seconds="1.2",
    )
    await until(lambda: kitchen.server.counters.repeats >= SLOTS)
    assert (await late.answer()).status == 504
    assert not kitchen.server.queue.ejection_reasons()
    gate.touch()
    assert (await waits.answer()).status == 200
    assert (tmp_path / "note").read_text() == "1\n"
    assert not (tmp_path / "late").exists()
    for other in others:
        other.leave()


async def test_a_body_that_cannot_be_kept_waits_at_the_worker(
    kitchen: Kitchen, worker: Replica, tmp_path: Path
) -> None:
    gate, own = tmp_path / "gate", int(worker.url.rpartition(":")[2])
    others = [await taking_a_slot(own, worker, gate) for _ in range(SLOTS)]
    await kitchen.serve(replicas=(replica(worker),))
    body = json.dumps({"text": "x" * (3 << 20)}).encode()
    waits = await kitchen.send("/size", method="POST", body=body, Content_Type="application/json")
    await until(lambda: kitchen.server.queue.in_flight == 1)
    await asyncio.sleep(1.2)  # longer than others wait there
    gate.touch()
    assert (await waits.answer()).body == b"%d" % (3 << 20)
    assert kitchen.server.counters.repeats == 0
    for other in others:
        other.leave()


async def test_what_is_for_another_replica_waits_until_that_is_found(
    kitchen: Kitchen, worker: Replica, tmp_path: Path
) -> None:
    """Its address was given to this one."""
    await kitchen.serve(replicas=(replica(worker, uid="another"),))
    body = body_of(tmp_path / "note")
    waits = [await kitchen.send("/work", method="POST", body=body) for _ in range(SLOTS + 1)]
    reads = await kitchen.send("/work")
    await until(lambda: kitchen.server.queue.ejection_reasons())
    reason = "another replica answers at its address"
    assert kitchen.server.queue.ejection_reasons() == {"r1": reason}
    await until(lambda: kitchen.server.queue.queued == SLOTS + 2)
    assert not (tmp_path / "note").exists()
    await kitchen.serve(replicas=(replica(worker),))
    assert [(await each.answer()).status for each in waits] == [200] * (SLOTS + 1)
    assert (await reads.answer()).status == 405, "what may run twice is not run either"
    assert len((tmp_path / "note").read_text().split()) == SLOTS + 1


async def test_callers_cannot_say_for_which_replica_and_handlers_do_not_see_it(
    kitchen: Kitchen, worker: Replica
) -> None:
    await kitchen.serve(replicas=(replica(worker),))
    answer = await kitchen.ask("/headers", method="POST", Hotplate_Replica="another 1")
    assert answer.status == 200
    assert "hotplate-replica" not in json.loads(answer.body)
    assert "x-request-id" in json.loads(answer.body)


async def test_streams_and_websockets_have_their_slots_until_they_end(
    kitchen: Kitchen, worker: Replica, folder: Path, tmp_path: Path
) -> None:
    """By a gateway that takes the worker for larger than it is told to be."""
    gate, own = tmp_path / "gate", int(worker.url.rpartition(":")[2])
    stream = await post_past(own, f"{worker.uid} 2", "/stream", gate=str(gate))
    assert (await stream.head())[0] == 100
    socket = await Caller.to(own)
    socket.send(
        "/mounted/ws",
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key="AAAAAAAAAAAAAAAAAAAAAA==",
        Hotplate_Replica=f"{worker.uid} 2",
    )
    assert (await socket.head())[0] == 101
    refused = await post_past(own, f"{worker.uid} 2", "/work", note=str(tmp_path / "note"))
    assert (await refused.reader.readline()) == b"HTTP/1.1 100 Full\r\n"
    task = await post_past(own, f"{worker.uid} 1 tasks", "/work", note=str(tmp_path / "task"))
    assert (await task.head())[0] == 100, "those have slots of their own"
    assert (await task.answer()).status == 200
    gate.touch()
    (folder / "gate").touch()
    waits = await post_past(own, f"{worker.uid} 1 stays", "/work", note=str(tmp_path / "note"))
    assert (await waits.head())[0] == 100
    assert (await waits.answer()).status == 200
    for each in (stream, socket, refused, task, waits):
        each.leave()


def test_only_workers_of_which_it_is_known_are_told() -> None:
    known = ReplicaRoute("r1", "127.0.0.1:1", 2, worker=True, uid="u-1")

    def lines(route: ReplicaRoute, name: str = "acme/echo") -> list[bytes]:
        fence = FenceLines(route, name)
        asked = ((False, True), (True, True), (True, False))
        return [fence.line(needs_slot=needs, may_return=may) for needs, may in asked]

    head = b"\r\nHotplate-Replica: u-1"
    assert lines(known) == [head, head + b" 2", head + b" 2 stays"]
    assert lines(known, "acme/echo" + TASKS) == [head, head + b" 2 tasks", head + b" 2 tasks stays"]
    assert lines(replace(known, learns=True)) == [head] * 3
    assert lines(replace(known, worker=False)) == [b""] * 3
    assert lines(replace(known, uid="")) == [b""] * 3


async def post_past(port: int, terms: str, path: str, **fields: object) -> Caller:
    """As another gateway sends it."""
    caller = await Caller.to(port)
    body = json.dumps(fields).encode()
    caller.send(
        path, method="POST", body=body, Content_Type="application/json", Hotplate_Replica=terms
    )
    return caller


async def taking_a_slot(port: int, worker: Replica, gate: Path) -> Caller:
    caller = await post_past(port, f"{worker.uid} {SLOTS}", "/stream", gate=str(gate))
    assert (await caller.head())[0] == 100
    return caller


def body_of(note: Path) -> bytes:
    return json.dumps({"note": str(note)}).encode()
