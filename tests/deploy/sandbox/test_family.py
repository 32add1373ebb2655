"""What a program forks has walls of its own, and tells with what it has ended."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.procfs import marked, runs
from hotplate.deploy.sandbox.family import Family
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, WatchedScope
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from tests.deploy.sandbox.walled import HELPERS, INTERPRETER, MISSING, REFUSED, Place, place
from tests.support.patience import until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root gives programs other ids")

DEPLOY = str(Path(__file__).parents[3] / "deploy")
FORKER = (
    HELPERS
    + """
import socket, struct

def is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False

sys.path.append(sys.argv[2])
from hotplate.deploy.sandbox.launcher.joining import confine_child, enter

channel = socket.socket(fileno=int(sys.argv[1]))
assert not [each for each in range(3, 256) if each != channel.fileno() and is_open(each)]
channel.sendall(b"%d" % os.getpid())
while True:
    data, received, _, _ = socket.recv_fds(channel, 1, 6)
    if not data:
        sys.exit()
    to, *namespaces, plan = received
    between = os.fork()
    if between == 0:
        enter(namespaces)
        if os.fork():
            os._exit(0)
        os.setsid()
        confine_child(plan)
        with socket.socket(fileno=to) as said:
            me = struct.pack("iII", os.getpid(), os.getuid(), os.getgid())
            said.sendmsg([b"-"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, me)])
            order = said.recv(1 << 16).decode()
            result = {}
            exec(order)
            said.sendall(json.dumps(result).encode())
            os._exit(int(said.recv(10) or b"1"))
    os.waitpid(between, 0)
    for each in received:
        os.close(each)
"""
)


@dataclass
class Fork:
    """One that waits for its order."""

    process: Process
    channel: socket.socket

    async def tell(self, code: str) -> Any:
        """What the code leaves in `result`."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.channel, code.encode())
        return json.loads(await loop.sock_recv(self.channel, 1 << 16))

    async def end(self, code: int) -> int | None:
        with self.channel:
            await asyncio.get_running_loop().sock_sendall(self.channel, str(code).encode())
            return await self.process.wait()


class Forker:
    """A program that forks on request."""

    def __init__(self, here: Place) -> None:
        self.here = here
        self.isolation = Isolation([here.root])
        self.family = Family()
        self.number = 0
        self._count = 0

    async def start(self) -> None:
        if why := self.isolation.forks_refused:
            pytest.skip(why)
        own = self.here.own
        self.isolation.claim(own, [own])
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        with theirs:
            argv = [sys.executable, "-I", "-S", "-c", FORKER, str(theirs.fileno()), DEPLOY]
            self.process = await self.isolation.spawn(
                argv,
                {REPLICA_DIR: str(own), "PATH": os.environ["PATH"]},
                own,
                own.parent / "log",
                view=VisibleFiles(reads=(*INTERPRETER, DEPLOY), own=str(own)),
                scope=WatchedScope([own], 0),
                pass_fds=[theirs.fileno()],
                family=self.family,
            )
        said = await asyncio.get_running_loop().sock_recv(self._channel, 10)
        assert said, (own.parent / "log").read_text()
        self.number = int(said)

    async def fork(self) -> Fork:
        self._count += 1
        own = self.here.data / f"fork-{self._count}/work"
        own.mkdir(parents=True)
        self.isolation.claim(own, [self.here.own, *self.here.data.glob("fork-*/work")])
        view = VisibleFiles(reads=(*INTERPRETER, DEPLOY), own=str(own))
        scope = WatchedScope([own], 0)
        walls = await self.isolation.nest(view, own.parent / "log", scope=scope, family=self.family)
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            sent = [theirs.fileno(), *walls.namespaces, walls.plan]
            socket.send_fds(self._channel, [b"f"], sent)
        walls.close()
        _, credentials, _, _ = await asyncio.to_thread(ours.recvmsg, 1, 64)
        assert credentials, (self.here.own.parent / "log").read_text()
        pid = struct.unpack("iII", credentials[0][2])[0]
        ours.setblocking(False)
        told = self.family.expect(pid)
        process = Process.of_fork(pid, scope, beside=[walls.first], told=told)
        return Fork(process, ours)

    async def end(self) -> None:
        self._channel.close()
        self.family.retire()
        await self.process.terminate(0)


@pytest.fixture
def here() -> Iterator[Place]:
    with place(os.getuid()) as made:
        yield made


@asynccontextmanager
async def forker(here: Place) -> AsyncIterator[Forker]:
    made = Forker(here)
    await made.start()
    try:
        yield made
    finally:
        await made.end()
        await made.family.gone()


LOOK = """
result["ids"] = [os.getuid(), os.stat("/tmp").st_uid, os.getgid()]
result["pids"] = sorted(int(each) for each in os.listdir("/proc") if each.isdigit())
result["me"] = os.getpid()
result["data"] = sorted(os.listdir(DATA))
result["own"] = outcome(lambda: write(OWN + "/mine"))
result["mounts"] = outcome(lambda: call("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, 0))
result["enters"] = outcome(lambda: call("setns", os.open("/proc/self/ns/user", os.O_RDONLY), 0))
result["limit"] = __import__("resource").getrlimit(6)[0]
"""


LEAVE_ONE = """
result["child"] = os.fork()
if not result["child"]:
    os.setsid()
    libc.pause()
"""


async def test_a_fork_has_walls_of_its_own(here: Place) -> None:
    async with forker(here) as program:
        one, other = await program.fork(), await program.fork()
        own = here.data / "fork-1/work"
        look = LOOK.replace("DATA", repr(str(here.data))).replace("OWN", repr(str(own)))
        seen = await one.tell(look)
        assert seen["ids"] == [0, 0, 0]
        assert seen["pids"] == [1, seen["me"]]
        assert seen["data"] == ["fork-1"]
        assert seen["own"] == 4
        assert seen["mounts"] == REFUSED
        assert seen["enters"] == REFUSED
        assert seen["limit"] == 4096
        outside = [os.stat(f"/proc/{each.process.pid}").st_uid for each in (one, other)]
        assert len({*outside, os.stat(f"/proc/{program.process.pid}").st_uid}) == 3
        assert os.stat(own / "mine").st_uid == outside[0]
        assert program.number > 1000 > seen["me"], "libraries notice a fork by its number"
        assert await other.tell(f"result['own'] = outcome(lambda: write({str(own)!r} + '/x'))") == {
            "own": MISSING
        }
        assert (await one.end(7), await other.end(0)) == (7, 0)


async def test_a_family_begins_where_the_program_does_not_see_our_own_files(here: Place) -> None:
    isolation, family = Isolation([here.root, Path(DEPLOY)]), Family()
    isolation.claim(here.own, [here.own])
    process = await isolation.spawn(
        ["/bin/sleep", "60"],
        {REPLICA_DIR: str(here.own)},
        here.own,
        here.own.parent / "log",
        view=VisibleFiles(own=str(here.own)),
        scope=WatchedScope([here.own], 0),
        family=family,
    )
    family.retire()
    await process.terminate(0)
    await family.gone()


async def test_forks_outlive_their_program_and_their_codes_are_told(here: Place) -> None:
    async with forker(here) as program:
        fork = await program.fork()
        await program.end()
        assert not runs(program.process.pid)
        assert await fork.tell("result['alive'] = True") == {"alive": True}
        assert await fork.end(9) == 9


async def test_all_of_a_fork_ends_with_it(here: Place) -> None:
    async with forker(here) as program:
        fork = await program.fork()
        assert (await fork.tell(LEAVE_ONE))["child"]
        walls = set(fork.process.beside)
        assert all(map(runs, walls))
        assert await fork.end(0) == 0
        await until(lambda: not any(map(runs, walls)))


async def test_a_program_that_ignores_its_end_is_killed_without_its_forks(here: Place) -> None:
    async with forker(here) as program:
        fork = await program.fork()
        program.family.retire()
        await program.process.wait()
        assert await fork.tell("result['alive'] = True") == {"alive": True}
        assert await fork.end(3) == 3


@pytest.mark.parametrize("pause_s", [0.0, 0.02, 0.05, 0.08])
async def test_walls_that_are_given_up_while_they_are_put_up_are_taken_down(
    here: Place, pause_s: float
) -> None:
    async with forker(here) as program:
        own = here.data / "fork-1/work"
        own.mkdir(parents=True)
        program.isolation.claim(own, [here.own])
        view, scope = VisibleFiles(own=str(own)), WatchedScope([own], 0)
        nest = program.isolation.nest(view, own.parent / "log", scope=scope, family=program.family)
        nesting = asyncio.create_task(nest)
        await asyncio.sleep(pause_s)  # moments of it, which tells of none of them
        nesting.cancel()
        await asyncio.wait([nesting])
        if not nesting.cancelled():
            nesting.result().end()
            nesting.result().close()
        await until(lambda: not any(map(runs, marked(REPLICA_DIR, [str(own)]))))
