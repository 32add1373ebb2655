"""What code inside a hostile replica gets: what is its own, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
import uuid

from tests.security.evil import SECRET, attack
from tests.security.grounds import Grounds

READ = """
try:
    with open({path!r}) as file:
        answer = file.read()
except OSError as error:
    answer = error.strerror
"""
SETUID = """
import os, stat, tempfile

def made(make):
    path = tempfile.mktemp()
    try:
        make(path)
    except OSError as error:
        return error.strerror
    return bool(os.stat(path).st_mode & stat.S_ISUID)

def changed(path):
    open(path, "w").close()
    os.chmod(path, 0o4755)

def opened(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))

answer = [made(changed), made(opened), made(lambda path: os.mknod(path, 0o104755))]
"""
SHARE_PORT = """
import socket
with socket.socket() as own:
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        answer = own.bind(("127.0.0.1", {port})) or "shared"
    except OSError as error:
        answer = error.strerror
"""
CALL_BY_NAME = """
import socket
with socket.socket(socket.AF_UNIX) as own:
    try:
        own.connect(chr(0) + "{name}")
        answer = own.recv(100).decode()
    except OSError as error:
        answer = error.strerror
"""
OTHERS = """
import os, resource, subprocess, sys

def read(path):
    with open(path, "rb") as file:
        return file.read(100_000)

def write(path):
    open(path, "r+b").close()

def namespaces():
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10020000))"
    if subprocess.run([sys.executable, "-I", "-S", "-c", code]).returncode:
        raise OSError

about = "/proc/{pid}"
tries = dict(
    signalled=lambda: os.kill({pid}, 0),
    limited=lambda: resource.prlimit({pid}, resource.RLIMIT_NOFILE),
    given_up=lambda: write(about + "/oom_score_adj"),
    held=lambda: os.close(os.pidfd_open({pid})),
    variables=lambda: read(about + "/environ").index(b"{secret}"),
    memory=lambda: read(about + "/maps"),
    files=lambda: os.listdir(about + "/root" + os.getcwd()),
    where=lambda: os.listdir(about + "/cwd"),
    machine=lambda: write("{file}"),
    namespaces=namespaces,
)
answer = []
for name, attempt in tries.items():
    try:
        attempt()
        answer.append(name)
    except (OSError, ValueError):
        pass
"""


class TestThePlatformsFiles:
    async def test_are_not_there(self, field: Grounds) -> None:
        path = field.canary("engine/canary")
        assert await attack(field.evil, READ.format(path=str(path))) == "No such file or directory"

    async def test_are_read_without_walls(self, open_field: Grounds) -> None:
        path = open_field.canary("engine/canary", SECRET)
        assert await attack(open_field.evil, READ.format(path=str(path))) == SECRET


class TestOthers:
    """Another replica's processes and files, the machine's, and other views of them."""

    async def test_are_out_of_reach(self, field: Grounds) -> None:
        assert await reached(field) == []

    async def test_are_reached_without_walls(self, open_field: Grounds) -> None:
        assert len(await reached(open_field)) == OTHERS.count("lambda") + 1


async def reached(grounds: Grounds) -> list[str]:
    """What code in the hostile replica gets of the victim, and of a file of the platform's user."""
    (state,) = (grounds.platform.data / "engine/replicas").glob("victim-*/state.json")
    with tempfile.NamedTemporaryFile(dir="/var/lib" if os.geteuid() == 0 else None) as file:
        os.chown(file.fileno(), grounds.user, grounds.user)
        pid = json.loads(state.read_text())["pid"]
        code = OTHERS.format(pid=pid, secret=SECRET, file=file.name)
        found: list[str] = await attack(grounds.evil, code)
        return found


class TestAFile:
    """That it leaves where others find it, as in `replica_writes`."""

    async def test_makes_nobody_the_platforms_user(self, field: Grounds) -> None:
        assert await attack(field.evil, SETUID) == ["Operation not permitted"] * 3

    async def test_makes_whoever_runs_it_that_without_walls(self, open_field: Grounds) -> None:
        assert await attack(open_field.evil, SETUID) == [True] * 3


class TestAPort:
    async def test_of_another_deployment_is_not_shared(self, field: Grounds) -> None:
        code = SHARE_PORT.format(port=field.victim.rpartition(":")[2])
        assert await attack(field.evil, code) == "Address already in use"

    async def test_of_another_deployment_is_shared_without_walls(self, open_field: Grounds) -> None:
        code = SHARE_PORT.format(port=open_field.victim.rpartition(":")[2])
        assert await attack(open_field.evil, code) == "shared"


class TestAnAbstractName:
    """By which X servers and message buses are called, that ask only whose user it is."""

    async def test_of_the_machines_is_not_called(self, field: Grounds) -> None:
        assert await call_by_name(field) == "Operation not permitted"

    async def test_of_the_machines_is_called_without_walls(self, open_field: Grounds) -> None:
        assert await call_by_name(open_field) == "come in"


async def call_by_name(grounds: Grounds) -> str:
    """What a replica hears from a service of this machine that asks nobody who calls."""
    name = uuid.uuid4().hex
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(f"\0{name}")
        service.listen()
        asking = asyncio.create_task(attack(grounds.evil, CALL_BY_NAME.format(name=name)))
        service.setblocking(False)
        answering = asyncio.create_task(answer(service))
        said = await asking
        answering.cancel()
        return str(said)


async def answer(service: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connection, _ = await loop.sock_accept(service)
    with connection:
        await loop.sock_sendall(connection, b"come in")
