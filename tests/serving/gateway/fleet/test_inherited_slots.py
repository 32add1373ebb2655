"""Whose slots count as taken when another gateway had them: real files, told time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hotplate.serving.gateway.fleet.inherited_slots import MARGIN, MARGIN_S, InheritedSlots
from hotplate.serving.gateway.fleet.slot_record import ROWS, TakenSlots, read_taken
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from hotplate.serving.gateway.queue.replica_slots import Replica
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.patience import until

OTHERS = "chat.other.slots"


def route(worker: str = "") -> Route:
    replicas = (
        ReplicaRoute("r1", "127.0.0.1:1", 4),
        ReplicaRoute("r2", worker, 4, worker=True) if worker else ReplicaRoute("r2", "h:2", 4),
    )
    return Route("acme/chat", "127.0.0.1", 1, replicas=replicas, timeout_s=30.0)


def replica(name: str, taken: int) -> Replica:
    made = Replica(name)
    made.taken = taken
    return made


@pytest.fixture
def foreign(tmp_path: Path) -> InheritedSlots:
    return InheritedSlots(tmp_path, "chat", tmp_path / "chat.own.slots", abandon_s=10.0)


@pytest.fixture
def others(tmp_path: Path) -> TakenSlots:
    return TakenSlots(tmp_path / OTHERS)


def test_a_file_outlives_its_gateway_and_grows_with_its_replicas(
    tmp_path: Path, others: TakenSlots
) -> None:
    for number in range(2 * ROWS):
        others.take(replica(f"r{number}", 1), now=float(number))
    for number in range(2, 2 * ROWS):
        others.release(replica(f"r{number}", 0), service_s=0.5)
    others.release(replica("r1", 0), service_s=0.1)
    size_bytes = (tmp_path / OTHERS).stat().st_size
    for number in range(10 * ROWS):  # as revisions come and go
        others.take(replica(f"s{number}", 1), now=1.0)
        others.release(replica(f"s{number}", 0), service_s=0.0)
    assert (tmp_path / OTHERS).stat().st_size == size_bytes
    others.close(remove=False)
    said = read_taken(tmp_path / OTHERS)
    assert [count for count, _ in said.slots.values()] == [1]
    assert 0 < said.slowest_s < 0.5


def test_a_living_gateways_slots_count_until_it_gives_them_back(
    foreign: InheritedSlots, others: TakenSlots
) -> None:
    others.take(replica("r1", 3), now=10.0)
    assert foreign.look(route(), now=10_000.0)
    assert foreign.slots == {"r1": 3}
    others.release(replica("r1", 1), service_s=0.1)
    foreign.look(route(), now=10_000.0)
    assert foreign.slots == {"r1": 1}
    others.release(replica("r1", 0), service_s=0.1)
    assert foreign.look(route(), now=10_000.0), "it may not take more, but its file is there"
    assert foreign.slots == {}
    others.close(remove=True)
    assert not foreign.look(route(), now=10_000.0)


def test_a_killed_gateways_slots_are_held_back_for_the_slowest_service_time(
    foreign: InheritedSlots, others: TakenSlots, tmp_path: Path
) -> None:
    others.take(replica("r1", 1), now=10.0)
    others.release(replica("r1", 0), service_s=2.0)
    others.take(replica("r1", 2), now=20.0)
    others.close(remove=False)
    held_s = 2.0 * MARGIN + MARGIN_S
    foreign.look(route(), now=20.0 + held_s - 0.01)
    assert foreign.slots == {"r1": 2}
    foreign.look(route(), now=20.0 + held_s + 0.01)
    assert foreign.slots == {}
    assert not (tmp_path / OTHERS).exists()


@pytest.mark.parametrize(("now", "held"), [(49.9, {"r1": 1}), (50.1, {}), (19.0, {})])
def test_where_nothing_was_learnt_it_is_the_time_limit_and_a_reboot_ends_all(
    foreign: InheritedSlots, others: TakenSlots, now: float, held: dict[str, int]
) -> None:
    others.take(replica("r1", 1), now=20.0)
    others.close(remove=False)
    foreign.look(route(), now=now)
    assert foreign.slots == held


class Worker(Backend):
    """Says how many handlers run in it."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers = 2
        self.websockets = 0
        self.on("/hotplate/running", self._say)

    async def _say(self, request: Request, connection: Connection) -> None:
        said = b'{"running": %d, "websockets": %d}' % (self.handlers, self.websockets)
        connection.answer(said, extra="Connection: close\r\n")
        connection.writer.close()


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    async with Worker() as worker:
        yield worker


async def test_a_worker_of_ours_says_when_a_killed_gateways_handlers_have_ended(
    foreign: InheritedSlots, others: TakenSlots, worker: Worker
) -> None:
    loop = asyncio.get_running_loop()
    others.take(replica("r2", 3), now=loop.time() - 1000.0)
    others.close(remove=False)
    changes: list[dict[str, int]] = []
    own = {"r2": 0}
    foreign.watch(
        lambda: route(worker.address),
        lambda name: own[name],
        lambda: changes.append(dict(foreign.slots)),
    )
    assert foreign.slots == {"r2": 4}, "all of them, until it has been asked"
    await until(lambda: foreign.slots == {"r2": 2})
    own["r2"] = 2  # what runs may be this gateway's own, so it is not asked for a while …
    worker.handlers = 0
    await until(lambda: foreign.slots == {"r2": 4})  # … and then gets nothing more
    own["r2"] = 0
    await until(lambda: foreign.slots == {})
    assert changes[0] == {"r2": 2}


async def test_a_killed_gateways_websockets_are_not_waited_for_for_ever(
    tmp_path: Path, others: TakenSlots, worker: Worker
) -> None:
    """Their callers went with it, and their handlers may not notice."""
    foreign = InheritedSlots(tmp_path, "chat", tmp_path / "chat.own.slots", abandon_s=0.2)
    loop = asyncio.get_running_loop()
    others.take(replica("r2", 3), now=loop.time() - 1000.0)
    others.close(remove=False)
    worker.handlers, worker.websockets = 3, 2
    began = loop.time()
    foreign.watch(lambda: route(worker.address), lambda name: 0, lambda: None)
    await until(lambda: foreign.slots == {"r2": 3})
    await until(lambda: foreign.slots == {"r2": 1})
    assert loop.time() - began >= 0.2
    worker.handlers = 2
    await until(lambda: foreign.slots == {})
