"""What processes take of the memory, with real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hotplate.deploy.process.memory import Memory, memory_of

MIB = 1 << 20
SLACK_BYTES = 12 * MIB
"""What a Python process has of its own beside what it is told to take."""
PROGRAM = """
import mmap, os, signal, sys

def touch(memory):
    for offset in range(0, len(memory), mmap.PAGESIZE):
        memory[offset] = 1
    return memory

def taken(size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
    return touch(mmap.mmap(-1, size, flags))

def only_read(size):
    file = os.memfd_create("arena")
    os.ftruncate(file, size)
    memory = mmap.mmap(file, size, prot=mmap.PROT_READ)
    return sum(memory[offset] for offset in range(0, size, mmap.PAGESIZE)), memory

size = 60 << 20
mine = eval(sys.argv[1])
for expression in sys.argv[2:]:
    done, told = os.pipe()
    if not (pid := os.fork()):
        kept = eval(expression)
        os.write(told, b"x")
        signal.pause()
    os.read(done, 1)
    print(pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def family(mine: str, children: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """A process that has evaluated an expression, and what it has forked, one for each."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, mine, *children],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout
        pids = [int(parent.stdout.readline()) for _ in children]
        try:
            yield (parent.pid, *pids)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            parent.kill()


def own(*pids: int) -> int:
    return memory_of(pids).own_bytes


def test_pages_that_forks_share_count_once_and_those_that_they_write_are_their_own() -> None:
    with family("taken(size)", ["0", "0", "touch(mine)"]) as (parent, idle, other, writer):
        assert own(writer) >= 60 * MIB
        assert 20 * MIB <= own(idle) < 20 * MIB + SLACK_BYTES, "three share it"
        together = memory_of([parent, idle, other])
        assert 60 * MIB <= together.own_bytes < 60 * MIB + SLACK_BYTES
        assert together.alone_bytes >= 3 * 60 * MIB


def test_what_only_one_has_left_is_its_own() -> None:
    with family("taken(size)", ["0"]) as (parent, child):
        assert own(child) < 30 * MIB + SLACK_BYTES
        os.kill(parent, signal.SIGKILL)
        os.waitid(os.P_PID, parent, os.WEXITED | os.WNOWAIT)
        assert memory_of([parent]) == Memory(), "a zombie takes nothing"
        assert own(child) >= 60 * MIB


def test_shared_memory_is_its_own_if_it_may_be_written_and_not_if_it_is_only_read() -> None:
    shared = "taken(size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)"
    with family("0", ["only_read(size)", shared]) as (_, reader, writer):
        assert own(reader) < SLACK_BYTES
        assert own(writer) >= 60 * MIB
        assert memory_of([reader]).alone_bytes < 60 * MIB


@pytest.mark.parametrize("rollup", ["missing", "refused", "without Pss"])
def test_where_no_proportional_size_is_told_the_resident_one_counts(
    tmp_path: Path, rollup: str
) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "status").write_text(
        "Name:\tpython\nVmRSS:\t 999 kB\nRssAnon:\t 100 kB\nRssFile:\t 20 kB\n"
        "RssShmem:\t 3 kB\nVmSwap:\t 4 kB\n"
    )
    if rollup == "refused":
        (folder / "smaps_rollup").mkdir()
    elif rollup == "without Pss":
        (folder / "smaps_rollup").write_text("1-2 ---p 0 00:00 0 [rollup]\nRss: 10 kB\n")
    assert memory_of([7], tmp_path) == Memory(127 << 10, 127 << 10)


def test_a_reading_that_gets_too_dear_goes_on_with_resident_sizes() -> None:
    with family("taken(size)", ["0", "0"]) as pids:
        assert memory_of(pids).own_bytes < 60 * MIB + 3 * SLACK_BYTES
        dear = memory_of(pids, longest_s=0)
        assert dear.own_bytes == dear.alone_bytes >= 3 * 60 * MIB


def test_what_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert memory_of([7], tmp_path) == Memory()
