"""WebSockets whose callers vanish: each gives its slot back, though its handler never ends."""

from __future__ import annotations

import asyncio
import socket

import pytest
from prometheus_client import generate_latest

from hotplate.machine.dead_peers import KEEPALIVE, has_hung_up, keep_taking
from hotplate.serving.gateway.admin.metrics import registry_of
from tests.support.gateway.backends import SWITCH, Connection, Request
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

ABANDON_S = 0.3
STARTED = b"HTTP/1.1 100 Started\r\n\r\n"


async def asked(kitchen: Kitchen) -> Caller:
    """A caller that has asked for a WebSocket."""
    caller = await kitchen.send("/ws", connection="Upgrade", upgrade="websocket")
    return caller


async def ready(kitchen: Kitchen, *, worker: bool, slots: int = 1, first: bytes = SWITCH) -> None:
    kitchen.limit(abandon_s=ABANDON_S, sweep_s=0.05)
    kitchen.backend.never_ends("/ws", first)
    await kitchen.wake(slots, worker=worker)


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize("worker", [False, True], ids=["other", "worker"])
async def test_callers_that_vanish_one_after_the_other_all_have_their_handshake(
    kitchen: Kitchen, worker: bool, reset: bool
) -> None:
    await ready(kitchen, worker=worker, slots=2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(6):
        caller = await asked(kitchen)
        assert (await caller.head())[0] == 101
        caller.leave(reset=reset)
    assert loop.time() - began >= 2 * ABANDON_S, "each slot was given three times, not at once"
    assert kitchen.backend.running == 6
    await until(lambda: kitchen.server.queue.in_flight == 0)
    demand = kitchen.server.demand()
    assert (demand.in_flight, demand.queued, demand.busy) == (0, 0, {})
    assert demand.abandoned == {"r1": 6}
    metrics = generate_latest(registry_of(lambda: [kitchen.server])).decode()
    assert 'hotplate_gateway_abandoned_handlers{route="acme/echo"} 6.0' in metrics
    kitchen.backend.gate.set()
    await until(lambda: not kitchen.server.demand().abandoned)


async def test_a_handler_that_ends_gives_its_slot_back_at_once_and_is_never_abandoned(
    kitchen: Kitchen,
) -> None:
    kitchen.limit(abandon_s=60.0)

    async def polite(request: Request, connection: Connection) -> None:
        connection.writer.write(SWITCH)
        await connection.reader.read()
        connection.writer.close()

    kitchen.backend.on("/ws", polite)
    await kitchen.wake()
    for _ in range(3):
        caller = await asked(kitchen)
        assert (await caller.head())[0] == 101
        caller.leave()
    await until(lambda: kitchen.server.queue.in_flight == 0)
    assert not kitchen.server.demand().abandoned


@pytest.mark.parametrize(
    "first", [b"", b"HTTP/1.1 403 Forbidden\r\n\r\n"], ids=["no answer", "refused"]
)
async def test_a_workers_handler_that_never_accepts_is_a_websockets_too(
    kitchen: Kitchen, first: bytes
) -> None:
    await ready(kitchen, worker=True, first=first)
    caller = await asked(kitchen)
    await until(lambda: kitchen.backend.running)
    if first:
        assert (await caller.head())[0] == 403
    caller.leave()
    await until(lambda: kitchen.server.demand().abandoned == {"r1": 1})
    assert kitchen.server.queue.in_flight == 0


async def test_a_handshake_whose_time_is_over_gives_its_slot_back(kitchen: Kitchen) -> None:
    await ready(kitchen, worker=True, first=b"")
    await kitchen.serve(timeout_s=0.1)
    caller = await asked(kitchen)
    assert (await caller.head())[0] == 504
    await until(lambda: kitchen.server.demand().abandoned == {"r1": 1})


async def test_another_servers_101_after_its_caller_left_makes_it_one(kitchen: Kitchen) -> None:
    kitchen.limit(abandon_s=ABANDON_S)
    switch = asyncio.Event()

    async def late(request: Request, connection: Connection) -> None:
        await switch.wait()
        connection.writer.write(SWITCH)
        await kitchen.backend.gate.wait()
        connection.writer.close()

    kitchen.backend.on("/ws", late)
    await kitchen.wake()
    caller = await asked(kitchen)
    await until(lambda: kitchen.backend.running)
    caller.leave()
    await asyncio.sleep(2 * ABANDON_S)
    assert kitchen.server.queue.in_flight == 1, "it may have been a plain request"
    switch.set()
    await until(lambda: kitchen.server.demand().abandoned == {"r1": 1})


BEGUN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    ("worker", "asks", "first"),
    [
        pytest.param(True, True, STARTED, id="our worker says that a plain handler began"),
        pytest.param(True, True, STARTED + BEGUN, id="and it has answered"),
        pytest.param(False, True, b"", id="another server may answer it as a plain request"),
        pytest.param(False, True, BEGUN, id="another server does"),
        pytest.param(True, False, STARTED, id="a request"),
        pytest.param(True, False, BEGUN, id="a stream"),
        pytest.param(False, False, b"", id="another server's request"),
        pytest.param(False, False, BEGUN, id="another server's stream"),
    ],
)
async def test_whatever_is_no_websocket_keeps_its_slot_until_its_handler_ends(
    kitchen: Kitchen, worker: bool, asks: bool, first: bytes
) -> None:
    await ready(kitchen, worker=worker, first=first)
    kitchen.limit(abandon_s=0.05)
    caller = await asked(kitchen) if asks else await kitchen.caller()
    if not asks:
        caller.send("/ws")
    await until(lambda: kitchen.backend.running)
    if first.endswith(BEGUN):
        assert (await caller.head())[0] == 200
    await asyncio.sleep(0.05)  # what the replica said first has come
    caller.leave()
    await asyncio.sleep(0.3)
    assert kitchen.server.queue.in_flight == 1
    assert not kitchen.server.demand().abandoned


async def stuck(kitchen: Kitchen) -> Caller:
    """A caller that has sent so much that nothing more is read of it: the replica takes nothing."""
    await ready(kitchen, worker=True)
    caller = await asked(kitchen)
    assert (await caller.head())[0] == 101
    caller.send_raw(bytes(32 << 20))
    [connection] = kitchen.server.callers
    await until(lambda: connection.read_paused)
    return caller


async def test_who_left_behind_what_the_replica_does_not_take_is_noticed(kitchen: Kitchen) -> None:
    caller = await stuck(kitchen)
    caller.leave(reset=True)
    await until(lambda: kitchen.server.demand().abandoned == {"r1": 1})


async def test_who_is_still_there_behind_it_is_waited_for(kitchen: Kitchen) -> None:
    await stuck(kitchen)
    await asyncio.sleep(3 * ABANDON_S)
    assert kitchen.server.queue.in_flight == 1


async def test_a_replica_drains_and_a_route_ends_beside_abandoned_handlers(
    kitchen: Kitchen,
) -> None:
    await ready(kitchen, worker=True)
    caller = await asked(kitchen)
    assert (await caller.head())[0] == 101
    caller.leave()
    await until(lambda: kitchen.server.demand().abandoned)
    await kitchen.sleep()
    assert not kitchen.server.queue.replicas
    assert kitchen.server.demand().abandoned == {"r1": 1}, "its connection is still there"
    kitchen.server.stop("it ends")
    async with asyncio.timeout(5):
        await kitchen.server.ended()
    await kitchen.backend.stop()
    await until(lambda: not kitchen.server.demand().abandoned)


def test_a_peer_without_a_word_is_asked_for_and_one_that_hung_up_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        sock, _ = listening.accept()
    with peer, sock:
        keep_taking(sock, 30.0)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE["TCP_KEEPIDLE"]
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        peer.sendall(b"unread")
        assert not has_hung_up(sock)
        peer.close()
        assert has_hung_up(sock)
