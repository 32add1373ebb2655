"""Which process may act on a machine's replicas, as the kernel has it, whoever was stopped."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.platform.leadership.seat import Seat
from tests.support.patience import PATIENCE_S, until

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from hotplate.platform.leadership.seat import Seat
from hotplate.platform.leadership.watchdog import Watchdog, begin_anew
folder, how = Path(sys.argv[1]), sys.argv[2]
if (folder / "began").exists():
    time.sleep(3600)  # it has begun anew, and waits
(folder / "began").touch()
seat = Seat(folder / "lock")
asyncio.run(seat.take())
if how == "leaves":
    seat.leave()
acts = os.open(folder / "acts", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def act():  # a thread of its own, as those of its pool, which runs as soon as it goes on
    while True:
        os.write(acts, b"x")
threading.Thread(target=act, daemon=True).start()
while os.fstat(acts).st_size == 0:
    time.sleep(0.001)
if how == "rings":
    watchdog = Watchdog(time.monotonic, lambda now: begin_anew("it was stopped"))
    watchdog.bark_at(time.monotonic() + 0.3)
print("acts", flush=True)
if how == "rings":
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    time.sleep(0.01)
"""


class Former:
    """A process that acts, and writes to a file while it does."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder = folder
        self.how = how
        words = [sys.executable, "-c", PROGRAM, str(folder), how]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"acts\n"

    @property
    def acted(self) -> int:
        return (self.folder / "acts").stat().st_size

    async def stopped(self) -> None:
        """One that rings stops by itself, as soon as its alarm is set."""
        if self.how != "rings":
            self.process.send_signal(signal.SIGSTOP)
        await until(lambda: "T (stopped)" in self.status)

    async def rung(self) -> None:
        """Its alarm has come, which it has not heard."""
        await until(lambda: int(self.field("ShdPnd"), 16) & 1 << (signal.SIGALRM - 1) > 0)

    @property
    def status(self) -> str:
        return Path(f"/proc/{self.process.pid}/status").read_text()

    def field(self, name: str) -> str:
        return self.status.partition(f"{name}:")[2].split()[0]


@pytest.fixture
def formers() -> Iterator[list[Former]]:
    made: list[Former] = []
    yield made
    for former in made:
        former.process.kill()
        former.process.communicate()


async def test_one_that_was_stopped_has_ended_all_that_it_did_before_the_next_acts(
    tmp_path: Path, formers: list[Former]
) -> None:
    former = Former(tmp_path, "rings")
    formers.append(former)
    await former.stopped()
    await former.rung()
    seat = Seat(tmp_path / "lock")
    async with asyncio.timeout(PATIENCE_S):
        await seat.take(hangs_s=PATIENCE_S)  # nobody but the kernel has had it go on
    acted = former.acted
    assert acted > 0
    former.process.send_signal(signal.SIGCONT)  # as whoever stopped it would
    with pytest.raises(subprocess.TimeoutExpired):  # it waits, as another process
        await asyncio.to_thread(former.process.wait, 0.3)
    assert former.acted == acted
    seat.leave()


async def test_one_that_hangs_is_killed_before_the_next_acts(
    tmp_path: Path, formers: list[Former]
) -> None:
    former = Former(tmp_path, "hangs")
    formers.append(former)
    await former.stopped()
    seat = Seat(tmp_path / "lock")
    async with asyncio.timeout(PATIENCE_S):
        await seat.take(hangs_s=0.2)
    acted = former.acted
    assert await asyncio.to_thread(former.process.wait, PATIENCE_S) == -signal.SIGKILL
    assert former.acted == acted
    seat.leave()


async def test_one_that_has_left_it_goes_on(tmp_path: Path, formers: list[Former]) -> None:
    former = Former(tmp_path, "leaves")
    formers.append(former)
    seat = Seat(tmp_path / "lock")
    async with asyncio.timeout(PATIENCE_S):
        await seat.take(hangs_s=0.0)
    assert former.process.poll() is None
    seat.leave()
