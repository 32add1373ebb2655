"""Tasks that run in the background of a component."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from hotplate.machine.background import (
    BackgroundTasks,
    retrieve_error,
    thread_to_its_end,
    until_done,
)
from tests.support.patience import PATIENCE_S


async def test_a_task_is_held_while_it_runs_and_let_go_when_it_has_ended() -> None:
    tasks, go = BackgroundTasks(), asyncio.Event()

    async def wait() -> None:
        await go.wait()

    tasks.start(wait())
    gc.collect()
    assert len(tasks) == 1
    go.set()
    await tasks.finish()
    assert len(tasks) == 0


async def test_finishing_waits_for_what_is_started_meanwhile() -> None:
    tasks, ran = BackgroundTasks(), list[str]()

    async def second() -> None:
        ran.append("second")

    async def first() -> None:
        ran.append("first")
        tasks.start(second())

    tasks.start(first())
    await tasks.finish()
    assert ran == ["first", "second"]


async def test_cancelling_ends_all_of_them_also_those_that_fail_on_the_way() -> None:
    tasks, started = BackgroundTasks(), asyncio.Event()

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    tasks.start(hang())
    tasks.start(fail())
    await started.wait()
    await tasks.cancel()
    assert len(tasks) == 0


async def test_a_failure_that_nobody_waits_for_is_not_reported() -> None:
    reports = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    task.add_done_callback(retrieve_error)
    await asyncio.wait({task})
    del task
    gc.collect()
    assert reports == []


async def test_what_is_to_be_done_is_done_however_often_its_caller_is_cancelled() -> None:
    go, done = asyncio.Event(), list[str]()

    async def clean_up() -> None:
        await go.wait()
        done.append("cleaned up")

    caller = asyncio.create_task(until_done(clean_up()))
    for _ in range(3):
        await until_idle()
        caller.cancel()
    await until_idle()
    assert not caller.done()
    go.set()
    await caller
    assert done == ["cleaned up"]


async def test_what_fails_while_its_caller_is_cancelled_is_raised() -> None:
    go = asyncio.Event()

    async def fail() -> None:
        await go.wait()
        raise ValueError

    caller = asyncio.create_task(until_done(fail()))
    await until_idle()
    caller.cancel()
    await until_idle()
    go.set()
    with pytest.raises(ValueError):
        await caller


async def test_a_thread_has_ended_when_its_caller_that_was_cancelled_twice_has() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), list[str]()

    def write(text: str) -> None:
        begun.set()
        go_on.wait(PATIENCE_S)
        ended.append(text)

    caller = asyncio.create_task(thread_to_its_end(asyncio.to_thread(write, "written")))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    for _ in range(2):
        caller.cancel()
        await until_idle()
    assert not caller.done(), "it waits for its thread"
    go_on.set()
    await asyncio.wait({caller})
    assert caller.cancelled()
    assert ended == ["written"]


async def until_idle() -> None:
    """Everything that can run now has run."""
    for _ in range(10):
        await asyncio.sleep(0)
