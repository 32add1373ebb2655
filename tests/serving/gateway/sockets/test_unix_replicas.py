"""Replicas that listen on a Unix socket, as the engine's do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.machine.unix_address import address_of, listen
from hotplate.serving.gateway.fleet.peer_queries import Handlers, ask_running
from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from tests.support.gateway.backends import Backend
from tests.support.gateway.kitchen import Kitchen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Longer than the address of a socket can be."""
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    return folder / "socket"


@pytest.mark.parametrize("worker", [False, True])
async def test_requests_go_to_a_socket_and_connections_are_kept(
    kitchen: Kitchen, path: Path, worker: bool
) -> None:
    await kitchen.backend.stop()
    kitchen.backend = Backend(path)
    await kitchen.backend.start()
    await kitchen.wake(2, worker=worker)
    for number in range(3):
        answer = await kitchen.ask("/echo", method="POST", body=b"%d" % number)
        assert answer.body == b"%d" % number
    assert kitchen.backend.connections == 1
    await kitchen.backend.stop()
    await kitchen.backend.start()
    assert (await kitchen.ask("/echo")).status == 200


async def test_callers_are_told_no_path_of_a_socket_that_nobody_answers(
    kitchen: Kitchen, path: Path
) -> None:
    listen(path, 8).close()
    await kitchen.serve(replicas=(ReplicaRoute("r1", address_of(path)),), timeout_s=0.3)
    answer = await kitchen.ask("/echo")
    assert answer.status in (503, 504)
    assert str(path) not in answer.error["message"]
    assert kitchen.server.queue.ejection_reason("r1").startswith("it takes no connection")


async def test_where_nobody_listens_any_more_nothing_runs(path: Path) -> None:
    listen(path, 8).close()
    assert await ask_running(address_of(path)) == Handlers()
    os.unlink(path)
    assert await ask_running(address_of(path)) == Handlers()


def test_a_listener_is_its_users_and_takes_the_place_of_what_was_there(path: Path) -> None:
    path.symlink_to("/etc/passwd")
    with listen(path, 8):
        assert path.is_socket()
        assert os.stat(path).st_mode & 0o777 == 0o600
    with listen(path, 8):
        pass
