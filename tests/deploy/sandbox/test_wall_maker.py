"""The process that puts up the walls of forks may end, or be stopped, at any time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hotplate.deploy.errors import SpawnFailed
from hotplate.deploy.process.procfs import runs, stat_of
from hotplate.deploy.sandbox import isolation
from hotplate.deploy.sandbox.process_scope import WatchedScope
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from tests.deploy.sandbox.test_family import Fork, forker
from tests.deploy.sandbox.walled import Place, place
from tests.support.patience import until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root gives programs other ids")


@pytest.fixture
def here() -> Iterator[Place]:
    with place(os.getuid()) as made:
        yield made


def makers() -> set[int]:
    """Those that this process has."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                is_one = b"launcher.wall_maker" in file.read()
            if is_one and stat_of(int(name)).parent == os.getpid():
                found.add(int(name))
        except OSError:
            continue  # it has ended
    return found


async def answered(fork: Fork) -> int | None:
    """What it ends with, once it has done something."""
    assert await fork.tell("result['alive'] = True") == {"alive": True}
    return await fork.end(0)


async def test_one_puts_up_the_walls_of_all_forks_and_ends_with_the_program(here: Place) -> None:
    async with forker(here) as program:
        assert makers() == set(), "a program that forks nothing needs none"
        forks = [await program.fork() for _ in range(3)]
        (maker,) = makers()
        inside = {os.stat(f"/proc/{fork.process.pid}/ns/user").st_ino for fork in forks}
        assert len({*inside, os.stat("/proc/self/ns/user").st_ino}) == 4
        assert [await answered(fork) for fork in forks] == [0, 0, 0]
    assert not runs(maker)


def killed(maker: int) -> Callable[[], bool]:
    os.kill(maker, signal.SIGKILL)
    return lambda: not runs(maker)


def stopped(maker: int) -> Callable[[], bool]:
    os.kill(maker, signal.SIGSTOP)
    return lambda: stat_of(maker).state in "Tt"


@pytest.mark.parametrize("harmed", [killed, stopped])
async def test_another_takes_its_place_and_what_it_has_put_up_stays(
    here: Place, harmed: Callable[[int], Callable[[], bool]]
) -> None:
    async with forker(here) as program:
        before = await program.fork()
        (maker,) = makers()
        await until(harmed(maker))
        after = await program.fork()
        (other,) = makers() - {maker}
        assert other != maker
        await until(lambda: not runs(maker))
        assert (await answered(before), await answered(after)) == (0, 0)


class Endless(WatchedScope):
    """One that takes for ever to be entered."""

    def __init__(self, folder: Path) -> None:
        super().__init__([folder], 0)
        self._folder = folder
        os.mkfifo(folder / "cgroup.procs")

    @property
    def entry(self) -> Sequence[str]:
        return ("900", str(self._folder))

    def let_enter(self) -> int:
        """Returns a descriptor that is to be closed when it has."""
        late = os.open(self._folder / "cgroup.procs", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(late, True)
        return late


async def test_a_fork_whose_walls_are_not_put_up_in_time_is_given_up(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forker(here) as program:
        assert await answered(await program.fork()) == 0
        (maker,) = makers()
        own = here.data / "late/work"
        own.mkdir(parents=True)
        program.isolation.claim(own, [here.own])
        scope, view = Endless(own), VisibleFiles(own=str(own))
        monkeypatch.setattr(isolation, "LIMIT_S", 0.3)
        with pytest.raises(SpawnFailed, match="walls of a fork are not up"):
            await program.isolation.nest(
                view, own.parent / "log", scope=scope, family=program.family
            )
        monkeypatch.undo()
        await until(lambda: not runs(maker))
        late = scope.let_enter()  # its walls are put up after all, and nobody waits for them
        try:
            await until(lambda: os.read(late, 100))
        finally:
            os.close(late)
        assert await answered(await program.fork()) == 0
