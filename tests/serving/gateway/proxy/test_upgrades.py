"""Callers that ask for another protocol on their connection."""

from __future__ import annotations

from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


async def test_a_tunnel_opens_after_101_and_holds_its_slot_until_closed(kitchen: Kitchen) -> None:
    async def parrot(request: Request, connection: Connection) -> None:
        connection.writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\n\r\nhello"
        )
        while data := await connection.reader.read(1 << 16):
            connection.writer.write(data.upper())
        connection.writer.close()

    kitchen.backend.on("/ws", parrot)
    await kitchen.wake()
    caller = await kitchen.send(
        "/ws", connection="Upgrade", upgrade="websocket", sec_websocket_key="k"
    )
    status, headers = await caller.head()
    assert (status, headers["upgrade"], headers["connection"]) == (101, "websocket", "upgrade")
    assert await caller.reader.readexactly(5) == b"hello"
    caller.send_raw(b"abc")
    assert await caller.reader.readexactly(3) == b"ABC"
    assert kitchen.server.queue.in_flight == 1
    caller.writer.close()
    await until(lambda: kitchen.server.queue.in_flight == 0)
    assert kitchen.backend.running == 0


async def test_a_replica_that_declines_the_upgrade_is_heard(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    answer = await caller.ask("/x", connection="Upgrade", upgrade="websocket")
    assert (answer.status, answer.body) == (200, b"ok /x")
    assert await caller.ended()


async def test_an_offer_of_http_2_is_passed_over_with_its_body(kitchen: Kitchen) -> None:
    await kitchen.wake()
    answer = await kitchen.ask(
        "/echo",
        method="POST",
        body=b"payload",
        connection="Upgrade, HTTP2-Settings",
        upgrade="h2c",
        http2_settings="AAMAAABk",
    )
    assert answer.body == b"payload"
    assert "upgrade" not in kitchen.backend.requests[0].headers
    caller = await kitchen.caller()
    for _ in range(2):
        assert (await caller.ask("/get", connection="Upgrade", upgrade="h2c")).status == 200
