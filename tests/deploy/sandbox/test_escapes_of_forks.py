"""What a program has forked reaches no more than what was started, and nothing of its siblings or
of the program."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.deploy.process.procfs import numbers_of, runs
from hotplate.deploy.sandbox.escape_targets import PROGRAM, escape_targets
from tests.deploy.sandbox.test_family import forker
from tests.deploy.sandbox.walled import Place, place

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root gives programs other ids")

ATTEMPTS = """
escapes = {"__name__": "escapes"}
with open(PROGRAM) as file:
    exec(compile(file.read(), PROGRAM, "exec"), escapes)
os.chdir(OWN)
for name, attempt in escapes["attempts"](OUTSIDE).items():
    result[name] = escapes["outcome"](attempt)
"""
AS_TARGET = """
os.chdir(OWN)
for path in ("/tmp/there", "/dev/shm/there", "there"):
    write(path)
heard = socket.socket(socket.AF_UNIX)
heard.bind(chr(0) + NAME)
heard.listen()
result["segment"] = call("shmget", 0, ctypes.c_size_t(4096), 0o1666)
"""
AT_OTHERS = """
import signal
libc.ptrace.restype = ctypes.c_long

def joined(pid):
    call("setns", os.pidfd_open(pid), 0x20000000)

def entered(pid, kind):
    call("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)

def called():
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(chr(0) + NAME)

def tried(name, work, *arguments):
    said = outcome(lambda: work(*arguments) and None)
    if said is None:
        result[name] = "it can"

for pid in PIDS:
    tried(f"signal {pid}", os.kill, pid, 0)
    tried(f"trace {pid}", call, "ptrace", 16, pid, None, None)
    tried(f"memory of {pid}", read, f"/proc/{pid}/mem")
    tried(f"variables of {pid}", read, f"/proc/{pid}/environ")
    tried(f"join {pid}", joined, pid)
    for kind in ("user", "pid", "ipc", "mnt"):
        tried(f"{kind} of {pid}", entered, pid, kind)
tried("end all", os.kill, -1, signal.SIGSTOP)
for path in ("/tmp/there", "/dev/shm/there", *PATHS):
    tried(path, os.stat, path)
tried("abstract name", called)
tried("shared memory", call, "shmat", SEGMENT, None, 0o10000)
"""


@pytest.fixture
def here() -> Iterator[Place]:
    with place(os.getuid()) as made:
        yield made


def own(here: Place, number: int) -> Path:
    return here.data / f"fork-{number}/work"


async def test_a_fork_escapes_no_more_than_what_was_started(here: Place) -> None:
    with escape_targets(here.data) as (_, outside):
        async with forker(here) as program:
            fork = await program.fork()
            outside["left"] = str(own(here, 1) / "left")
            code = f"PROGRAM, OWN, OUTSIDE = {str(PROGRAM)!r}, {str(own(here, 1))!r}, {outside!r}"
            got = await fork.tell(code + ATTEMPTS)
            assert {name for name, why in got.items() if why is None} == {"file"}
            assert len(got) > 20
            owner = (own(here, 1) / "left").stat().st_uid
            assert owner == os.stat(f"/proc/{fork.process.pid}").st_uid
            assert await fork.end(0) == 0


async def test_a_fork_reaches_neither_its_siblings_nor_its_program(here: Place) -> None:
    async with forker(here) as program:
        sibling, fork = await program.fork(), await program.fork()
        name = f"hotplate-{secrets.token_hex(8)}"
        target = f"OWN, NAME = {str(own(here, 1))!r}, {name!r}"
        segment = (await sibling.tell(target + AS_TARGET))["segment"]
        others = (program.process.pid, sibling.process.pid, *sibling.process.beside)
        pids = sorted({number for pid in others for number in numbers_of(pid)[:2]} - {1})
        paths = [str(own(here, 1) / "there"), str(here.own), f"{here.own}/tmp"]
        attack = f"PIDS, PATHS, NAME, SEGMENT = {pids}, {paths}, {name!r}, {segment}"
        reached = await fork.tell(attack + AT_OTHERS)
        alive = all(map(runs, others))
        codes = await sibling.end(5), await fork.end(6)
        assert (reached, alive, codes) == ({}, True, (5, 6))
