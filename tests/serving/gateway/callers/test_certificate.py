"""TLS with a given certificate, which may be replaced while the route serves."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import issue
from tests.support.gateway.backends import SWITCH
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


async def caller_of(kitchen: Kitchen, trusted: Path) -> Caller:
    context = ssl.create_default_context(cafile=str(trusted))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", kitchen.route.port, ssl=context, server_hostname="localhost"
    )
    return kitchen.keep(Caller(reader, writer))


async def test_a_route_with_a_certificate_is_called_by_https(
    kitchen: Kitchen, tmp_path: Path
) -> None:
    certificate, key = issue(tmp_path, "one")
    await kitchen.wake()
    assert (await kitchen.ask("/plain")).status == 200
    await kitchen.serve(tls_certificate=str(certificate), tls_key=str(key))
    caller = await caller_of(kitchen, certificate)
    body = bytes(range(256)) * 4000
    for _ in range(2):
        answer = await caller.ask("/echo", method="POST", body=body)
        assert (answer.status, answer.body) == (200, body)
    assert kitchen.backend.requests[-1].headers["x-forwarded-proto"] == "https"
    plain = await kitchen.send("/x")
    assert await plain.ended()
    caller.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    caller.leave()
    await until(lambda: kitchen.server.counters.left == 1)


async def test_a_websocket_whose_caller_vanishes_gives_its_slot_back(
    kitchen: Kitchen, tmp_path: Path
) -> None:
    certificate, key = issue(tmp_path, "one")
    kitchen.backend.never_ends("/ws", SWITCH)
    kitchen.limit(abandon_s=0.1)
    await kitchen.wake(worker=True)
    await kitchen.serve(tls_certificate=str(certificate), tls_key=str(key))
    caller = await caller_of(kitchen, certificate)
    caller.send("/ws", connection="Upgrade", upgrade="websocket")
    assert (await caller.head())[0] == 101
    caller.leave()
    await until(lambda: kitchen.server.demand().abandoned == {"r1": 1})
    assert kitchen.server.queue.in_flight == 0


async def test_a_new_certificate_is_taken_over_and_a_bad_one_is_told(
    kitchen: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.serving.gateway.callers.route_listener.RETRY_S", 0.02)
    used, used_key = tmp_path / "used.pem", tmp_path / "used.key"
    files = {"tls_certificate": str(used), "tls_key": str(used_key)}
    await kitchen.serve(**files)
    assert "used.pem" in kitchen.server.error and "No such file" in kitchen.server.error

    one, one_key = issue(tmp_path, "one")
    used_key.write_bytes(one_key.read_bytes())
    used.write_bytes(one.read_bytes())
    await until(lambda: not kitchen.server.error)
    await kitchen.wake()
    before = await caller_of(kitchen, one)
    assert (await before.ask("/a")).status == 200

    two, two_key = issue(tmp_path, "two")
    used.write_bytes(two.read_bytes())
    await until(lambda: kitchen.server.error)
    assert "cannot be used: KEY_VALUES_MISMATCH; the one before it is" in kitchen.server.error
    assert (await (await caller_of(kitchen, one)).ask("/b")).status == 200
    used_key.write_bytes(two_key.read_bytes())
    await until(lambda: not kitchen.server.error)
    assert (await (await caller_of(kitchen, two)).ask("/c")).status == 200
    assert (await before.ask("/d")).status == 200, "what is open goes on"
    with pytest.raises(ssl.SSLError):
        await caller_of(kitchen, one)
