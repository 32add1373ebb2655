"""Who gets a slot of a worker, in which order, and when it comes back."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace

import pytest

from hotplate.serving.replica.inside.patches import fence as module
from hotplate.serving.replica.inside.patches.fence import Fence, Permit, Slot, take_permit
from hotplate.serving.replica.inside.patches.running import SLOT, TASK_SLOT, Running
from tests.support.patience import until

ONE = Permit(b"u", 1)


def stays() -> bool:
    return False


async def taken(fence: Fence, permit: Permit = ONE) -> Slot:
    slot = await fence.enter(permit, stays)
    assert slot is not None
    return slot


@pytest.fixture
def fence() -> Fence:
    return Fence(Running(), "u")


async def test_who_waits_gets_a_slot_in_its_turn(fence: Fence) -> None:
    first = await taken(fence)
    order: list[int] = []

    async def wait(number: int) -> None:
        slot = await taken(fence)
        order.append(number)
        slot.free()

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    first.free()
    late = asyncio.create_task(wait(3))  # a slot is free, and others are before it
    await asyncio.gather(*waiting, late)
    assert order == [0, 1, 2, 3]


async def test_who_finds_none_in_time_goes_back_and_who_stays_does_not(
    fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.02)
    slot = await taken(fence)
    assert await fence.enter(ONE, stays) is None
    waits = asyncio.create_task(fence.enter(ONE._replace(stays=True), stays))
    await asyncio.sleep(0.06)
    assert not waits.done()
    slot.free()
    assert await waits is not None


async def test_who_has_left_gets_none(fence: Fence) -> None:
    slot = await taken(fence)
    has_left = asyncio.Event()
    waits = asyncio.create_task(fence.enter(ONE._replace(stays=True), has_left.is_set))
    await asyncio.sleep(0)
    has_left.set()
    assert await waits is None
    slot.free()
    assert (await taken(fence)) is not None


async def test_kept_tasks_have_slots_of_their_own(fence: Fence) -> None:
    await taken(fence)
    task = await taken(fence, Permit(b"u", 1, is_task=True))
    task.free()
    task.free()  # counts once
    await taken(fence, Permit(b"u", 1, is_task=True))


async def test_a_websocket_whose_connection_has_ended_gives_its_slot_up(
    fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANGUP_S", 0.01)
    monkeypatch.setattr(module, "ABANDON_S", 0.02)
    slot, ended = await taken(fence), asyncio.Event()
    transport = SimpleNamespace(is_closing=ended.is_set)
    watch = asyncio.create_task(slot.free_when_abandoned(transport))
    await asyncio.sleep(0.05)
    assert not watch.done()
    ended.set()
    await until(watch.done)
    (await taken(fence)).free()
    slot.free()  # its handler ends at last
    await taken(fence)


def test_a_slot_that_one_process_has_no_other_one_gets() -> None:
    fd = Running.share(2)
    one, two = Running(1, 2, os.dup(fd)), Running(2, 2, fd)
    assert one.take(SLOT, 2)
    assert two.take(SLOT, 2)
    assert not one.take(SLOT, 2)
    assert two.take(TASK_SLOT, 1)
    two.give_back(SLOT)
    assert one.take(SLOT, 2)
    assert one.count() == 0, "handlers are counted when they begin"


@pytest.mark.parametrize(
    ("value", "permit"),
    [
        (b"u-1", Permit(b"u-1")),
        (b"u-1 2", Permit(b"u-1", 2)),
        (b"u-1 2 stays", Permit(b"u-1", 2, stays=True)),
        (b"u-1 1 tasks stays", Permit(b"u-1", 1, is_task=True, stays=True)),
    ],
)
def test_permit_are_taken_out_of_the_request(value: bytes, permit: Permit) -> None:
    scope = {"headers": [(b"host", b"a"), (b"hotplate-replica", value), (b"b", b"c")]}
    assert take_permit(scope) == permit
    assert scope["headers"] == [(b"host", b"a"), (b"b", b"c")]
    assert take_permit(scope) is None


def test_a_worker_without_a_name_takes_what_comes() -> None:
    assert not Fence(Running()).is_elsewhere(Permit(b"u"))
    assert Fence(Running(), "v").is_elsewhere(Permit(b"u"))


@pytest.mark.parametrize(
    ("peer", "method", "path", "bypassed"),
    [
        (("10.200.1.7", 5000), "POST", "/predict", True),
        (("10.200.1.7", 5000), "GET", "/metrics", True),
        (("10.200.1.7", 5000), "GET", "/prefix/readyz", False),
        (("10.200.1.7", 5000), "POST", "/readyz", True),
        (("fd00::7", 5000), "GET", "/", True),
        (("127.0.0.1", 5000), "POST", "/predict", False),
        (("::1", 5000), "POST", "/predict", False),
        (None, "POST", "/predict", False),
        ("", "POST", "/predict", False),
    ],
)
def test_a_neighbour_on_the_network_does_not_come_past_the_gateways(
    peer: tuple[str, int] | str | None, method: str, path: str, bypassed: bool
) -> None:
    scope = {"type": "http", "method": method, "path": path}
    assert Fence(Running(), "uid-1").is_bypassed(scope, peer) == bypassed
    assert not Fence(Running()).is_bypassed(scope, peer), "without a uid nobody sends permits"
    websocket = {"type": "websocket", "path": path}
    remote = isinstance(peer, tuple) and peer[0] not in ("127.0.0.1", "::1")
    assert Fence(Running(), "uid-1").is_bypassed(websocket, peer) == remote
