"""What a replica's process notes of its start, and what becomes of what others note there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.serving.replica.inside import journal, methods
from hotplate.serving.replica.inside.journal import Journal, JournalPhase, phases_in
from tests.support.replica.replicas import Agent, runtime_of


def test_phases_are_read_as_they_were_noted(tmp_path: Path) -> None:
    notes = Journal(tmp_path / "file")
    notes.note("process", "begin", 1.0)
    notes.note("process", "end", 2.0)
    notes.note("init", "begin", 3.0)
    content = (tmp_path / "file").read_bytes()
    assert phases_in(content) == (JournalPhase("process", 1.0, 2.0), JournalPhase("init", 3.0))
    assert phases_in(content[:-1]) == (JournalPhase("process", 1.0, 2.0),), (
        "a line that is not whole"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[" * 60_000,
        b'{"phase": "init", "event": "begin"}',
        b'{"phase": "init", "event": "begin", "at": NaN}',
        b'{"phase": "init", "event": "begin", "at": -1e999}',
        b'{"phase": "init", "event": "begin", "at": ' + b"9" * 5000 + b"}",
        b'{"phase": "init", "event": "begin", "at": "soon"}',
        b'{"phase": "init", "event": "begin", "at": {}}',
        b'{"phase": ["init"], "event": "begin", "at": 1}',
        b'{"phase": "\\u001b[2J", "event": "begin", "at": 1}',
        b'{"phase": "\\ud800", "event": "begin", "at": 1}',
        bytes(range(256)),
    ],
)
def test_nonsense_is_passed_over(line: bytes) -> None:
    good = b'{"phase": "process", "event": "begin", "at": 1}\n'
    assert phases_in(line + b"\n" + good) == phases_in(good)


def test_no_more_than_a_part_of_an_endless_file_counts() -> None:
    line = b'{"phase": "process", "event": "begin", "at": 1}\n'
    assert phases_in(b"\n" * journal.MOST_BYTES + line) == ()


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/etc/hostname"),
        Path.mkdir,
    ],
    ids=["pipe", "endless", "link", "folder"],
)
@pytest.mark.parametrize("name", [journal.FILE_NAME, methods.FILE_NAME])
async def test_a_file_that_is_none_is_nothing_said(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    """At the top of a bento's service: `os.mkfifo(os.environ["HOTPLATE_REPLICA_DIR"] + …)`."""
    work = tmp_path / "work"
    work.mkdir()
    make(work / name)
    runtime = runtime_of(tmp_path, Agent({}))
    async with asyncio.timeout(10):
        assert list(await runtime.phases(str(work))) == []
        assert await runtime.self_report(str(work)) is None
    await runtime.close()
