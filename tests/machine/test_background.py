"""Tasks that run in the background of a component."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from hotplate.machine.background import BackgroundTasks, retrieve_error


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
