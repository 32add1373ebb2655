"""What a program within walls sees and can do to processes, and how those of it end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.process.procfs import marked
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.launcher.instructions import (
    PROCESSES,
)
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, WatchedScope
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from tests.deploy.sandbox.walled import (
    FORBIDDEN,
    MISSING,
    REFUSED,
    Place,
    open_to,
)


def holders(path: Path) -> list[int]:
    """Who has this file open."""
    found = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if descriptor.samefile(path):
                found.append(int(descriptor.parts[2]))
    return found


class TestProcesses:
    CODE = """
outside = int(sys.argv[1])
tell(
    listed=sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    ourselves=os.getpid(),
    environ=outcome(lambda: read(f"/proc/{outside}/environ")),
    signalled=outcome(lambda: os.kill(outside, 0)),
    limited=outcome(lambda: call("prlimit", outside, 7, None, None)),
)
"""

    def test_of_others_are_not_there(self, here: Place) -> None:
        seen = here.look(self.CODE, os.getpid())
        assert seen["listed"] == [1, 2] and seen["ourselves"] == 2
        assert seen["environ"] == MISSING
        assert seen["signalled"] == seen["limited"] == "No such process"

    def test_of_others_are_there_without(self, here: Place) -> None:
        seen = open_to(here, PROCESSES).look(self.CODE, os.getppid())
        assert os.getpid() in seen["listed"]

    def test_the_first_cannot_be_looked_into_or_ended(self, here: Place) -> None:
        seen = here.look(
            """
os.kill(1, 9), os.kill(1, 15)
tell(
    traced=outcome(lambda: call("ptrace", 16, 1, None, None)),
    memory=outcome(lambda: read("/proc/1/environ")),
    there=outcome(lambda: os.kill(1, 0)),
)
"""
        )
        assert seen["traced"] in (REFUSED, FORBIDDEN) and seen["memory"] in (REFUSED, FORBIDDEN)
        assert seen["there"] is None

    MEMORY = """
import subprocess
uses = "import time; kept = bytearray(64 << 20); time.sleep(4)"
env = {"HOTPLATE_REPLICA_DIR": sys.argv[1]} if sys.argv[1:] else {}
tell(ended=subprocess.run([sys.executable, "-I", "-S", "-c", uses], env=env).returncode)
"""

    def test_that_shed_their_environment_are_held_to_its_memory(self, here: Place) -> None:
        limited = replace(here, limit_bytes=48 << 20)
        assert "used more than its 48 MiB" in limited.look(self.MEMORY)

    def test_that_call_themselves_another_s_use_none_of_its_memory(self, here: Place) -> None:
        limited = replace(here, limit_bytes=48 << 20, mark="/another's")
        assert limited.look(self.MEMORY, "/another's") == {"ended": 0}

    DAEMON = """
import asyncio
import fcntl
lock = open("lock", "w")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write("held", "yes")
        sleeper = "import signal\\nwhile True: signal.pause()"
        os.set_inheritable(lock.fileno(), True)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", sleeper], {})
    os._exit(0)
while not os.path.exists("held") or not os.path.exists("go"):
    pass
tell(held=True)
"""

    @pytest.mark.parametrize("adopted", [False, True], ids=["ours", "adopted"])
    def test_all_end_with_the_program(self, here: Place, adopted: bool) -> None:
        """Also one without our marker or a session of ours; there is no control group here."""
        assert replace(here, adopted=adopted).look(self.DAEMON)["held"]
        with open(here.own / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_one_without_our_marker_goes_on_without(self, here: Place) -> None:
        assert open_to(here, PROCESSES).look(self.DAEMON)["held"]
        with open(here.own / "lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for pid in holders(here.own / "lock"):
            os.kill(pid, signal.SIGKILL)

    def test_share_no_memory_with_others(self, here: Place) -> None:
        code = "tell(memory=outcome(lambda: call('shmget', int(sys.argv[1]), 4096, 0o1600)))"
        key = os.getpid()
        first = here.look(code, key)["memory"]
        assert isinstance(first, int) and here.look(code, key)["memory"] == first, "each its own"


async def test_a_start_that_is_given_up_twice_leaves_nothing(tmp_path: Path) -> None:
    """As the engine does that stops a replica in the middle of its start."""
    isolation, work = Isolation([tmp_path]), tmp_path / "program" / "work"
    work.mkdir(parents=True)
    isolation.claim(work, [])
    given_up = 0
    for turns in range(12):
        starting = asyncio.create_task(
            isolation.spawn(
                ["/bin/sleep", "60"],
                {REPLICA_DIR: str(work)},
                work,
                tmp_path / "log",
                view=VisibleFiles(own=str(work)),
                scope=WatchedScope([work], 0),
            )
        )
        await asyncio.sleep(turns / 400)
        starting.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
            given_up += starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await starting.result().terminate(0)
        assert marked(REPLICA_DIR, [str(work)]) == []
    assert given_up > 0
