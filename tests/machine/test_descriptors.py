from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from hotplate.machine.descriptors import are_short, say_when_short, short


def test_a_shortage_is_known_by_what_failed_or_why() -> None:
    lacking = OSError(errno.EMFILE, "Too many open files")
    outer = RuntimeError("it cannot be started")
    outer.__cause__ = lacking
    assert are_short(lacking)
    assert are_short(outer)
    assert not are_short(OSError(errno.ENOSPC, "No space left on device"))
    assert not are_short(RuntimeError())


async def test_a_loop_says_once_a_minute_that_descriptors_are_short(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    say_when_short(loop, logging.getLogger("test"))
    lacking = {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}
    try:
        for _ in range(3):
            loop.call_exception_handler(lacking)
        loop.call_exception_handler({"message": "another fault", "exception": OSError(1, "no")})
    finally:
        loop.set_exception_handler(None)
    assert [record.getMessage() for record in caplog.records] == [short(), "another fault"]
