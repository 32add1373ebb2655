"""What replicas that are other users, or the agent's own, make of what the agent lends them."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.client import AgentClient
from hotplate.cache.file_view.mounting import mounted_at
from hotplate.cache.manifest import Manifest
from hotplate.cache.tiers import private_mounts as own_mounts
from tests.support.as_user import __file__ as AS_USER
from tests.support.cache.fakes import AgentProcess, publish, random_bytes
from tests.support.patience import PATIENCE_S

OURS, THEIRS = random_bytes(100_000, 1), random_bytes(100_000, 2)
UNUSED = 1_879_048_192
"""No user of any machine."""
REPLICA = """
import json, os, socket, sys
sys.path[:0] = json.loads(sys.argv[1])
from hotplate.cache.reader import open_file
socket_path, path, theirs, shown = sys.argv[2:]
results = {}

def tried(name, work):
    try:
        results[name] = work() or "done"
    except OSError as error:
        results[name] = type(error).__name__

def write(fd):
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    os.pwrite(again, b"EVIL", 0)

with open_file(socket_path, path) as file:
    file.wait_all()
    results["streamed"] = bytes(file.view[:4]).hex()
    again = os.open(f"/proc/self/fd/{file.fd}", os.O_RDONLY)
    results["opened again"] = os.pread(again, 4, 0).hex()
    tried("write", lambda: os.pwrite(file.fd, b"EVIL", 0))
    tried("truncate", lambda: os.truncate(f"/proc/self/fd/{file.fd}", 1))
    tried("open to write", lambda: write(file.fd))
    tried("chmod", lambda: os.fchmod(file.fd, 0o666))
    tried("chmod, open to write", lambda: write(file.fd))
tried("another's, streamed", lambda: open_file(socket_path, theirs).close())
tried("another's, as a file", lambda: open(theirs).close())
tried("its file", lambda: open(path, "rb").read(4).hex())
tried("change its file", lambda: os.chmod(path, 0o666))
tried("seen", lambda: shown and open(f"{shown}/model.safetensors", "rb").read(4).hex())
print(json.dumps(results))
"""
PATHS = [str(Path(__file__).parents[3] / "cache")]


class Node:
    """An agent, and a folder of a replica of each of two models."""

    def __init__(self, folder: Path, agent: AgentProcess, ours: Manifest, theirs: Manifest) -> None:
        self.data = folder / "data"
        self.agent = agent
        self.ours, self.theirs = (self._file(one) for one in (ours, theirs))
        self.replica = folder / "replica"
        self.view = ""

    def _file(self, manifest: Manifest) -> Path:
        return self.data / "trees" / manifest.digest / "model.safetensors"

    async def attack(self, user: str) -> dict[str, Any]:
        """What a replica of that user says of its tries."""
        socket_path = self.replica / "agent.sock"
        shown = [self.replica, self.ours.parent, *([self.view] if self.view else [])]
        python = [sys.executable, "-c", REPLICA, json.dumps(PATHS)]
        own = [str(one) for one in (socket_path, self.ours, self.theirs, self.view)]
        folders = [sys.prefix, sys.base_prefix, *PATHS, *shown]
        change = [sys.executable, AS_USER, user, *folders, "--"] if user else []
        return await asyncio.to_thread(_said, [*map(str, change), *python, *own])


def _said(argv: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.fixture
def folder() -> Iterator[Path]:
    """In a place that other users may pass."""
    with tempfile.TemporaryDirectory(prefix="hotplate-ids-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        unmounted(Path(name, "view"))


def unmounted(folder: Path) -> None:
    """Returns when nothing is mounted there: a view's daemon outlives its agent for a moment."""
    with open("/proc/self/mountinfo") as mounts:
        changes = select.poll()
        changes.register(mounts, select.POLLPRI | select.POLLERR)
        while mounted_at(folder):
            assert changes.poll(PATIENCE_S * 1000), f"{folder} is still mounted"


async def node(folder: Path, agent: AgentProcess, user: int, manifests: Sequence[Manifest]) -> Node:
    """The replica's folder is that user's, as the engine makes it."""
    made = Node(folder, agent, *manifests)
    made.replica.mkdir(mode=0o700, exist_ok=True)
    os.chown(made.replica, user, user)
    client = AgentClient(agent.url)
    for manifest in manifests:
        tree = await client.tree(manifest.digest, wait="all")
    made.view = (await client.tree(manifests[0].digest, wait="view")).view
    await client.admit(str(made.replica / "agent.sock"), [manifests[0].digest])
    assert tree.complete
    await client.close()
    return made


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")


@needs_root
@pytest.mark.parametrize("view", [False, True], ids=["trees", "view"])
@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["memory", "disk"])
@pytest.mark.parametrize("user", [str(UNUSED), f"in:{UNUSED}", ""])
async def test_a_replica_reads_its_models_and_changes_nothing(
    folder: Path, user: str, memory: int, view: bool
) -> None:
    """Whoever it is: an unused user, one of its own namespace, or the agent's own."""
    manifests = [publish(folder / "store", {"model.safetensors": one}) for one in (OURS, THEIRS)]
    options: dict[str, Any] = {"arena_limit_bytes": memory, "umask": 0o077}
    if view:
        options["mount"] = folder / "view"
    with AgentProcess(folder / "data", f"file://{folder}/store", **options) as agent:
        made = await node(folder, agent, UNUSED if user else 0, manifests)
        results = await made.attack(user)
        right = OURS[:4].hex()
        assert (
            results.pop("streamed")
            == results.pop("opened again")
            == results.pop("its file")
            == right
        )
        assert results.pop("seen") == (right if made.view else "done")
        if not user:  # it is not hidden from the agent's own user but by the engine's walls
            assert results.pop("another's, as a file") == results.pop("change its file") == "done"
        assert "done" not in results.values(), results
        for path, mode in (("", 0o700), ("disk", 0o700), ("agent.sock", 0o600)):
            assert (made.data / path).stat().st_mode & 0o777 == mode, path
        if user:
            assert made.ours.read_bytes() == OURS
            assert made.ours.stat().st_mode & 0o777 == 0o444


@needs_root
async def test_where_no_mount_can_be_made_a_replica_of_the_same_user_changes_what_it_is_lent(
    folder: Path,
) -> None:
    """The wall taken away."""
    manifests = [publish(folder / "store", {"model.safetensors": one}) for one in (OURS, THEIRS)]
    options: dict[str, Any] = {"arena_limit_bytes": 0, "umask": 0o077, "without": "shield"}
    with AgentProcess(folder / "data", f"file://{folder}/store", **options) as agent:
        made = await node(folder, agent, 0, manifests)
        results = await made.attack("")
        assert results["chmod"] == results["chmod, open to write"] == "done"
        assert (made.data / "disk").is_dir() and made.ours.read_bytes()[:4] == b"EVIL"


@pytest.mark.parametrize("user", [0, 54_321])
def test_a_folder_is_read_only_through_its_descriptor(folder: Path, user: int) -> None:
    """Also for an ordinary user, who may make mounts in a user namespace only."""
    if os.getuid() not in (0, user):
        pytest.skip("needs root, to be another user")
    (folder / "file").write_bytes(b"right")
    for path in (folder, folder / "file"):
        os.chown(path, user, user)
    program = f"""
import os, sys
sys.path[:0] = {PATHS!r}
from pathlib import Path
from hotplate.cache.tiers import private_mounts as own_mounts
folder = own_mounts.read_only(Path({str(folder)!r}))
fd = os.open("file", os.O_RDONLY, dir_fd=folder)
assert os.read(fd, 9) == b"right"
for change in (
    lambda: os.fchmod(fd, 0o666),
    lambda: os.utime(fd, (1, 1)),
    lambda: os.open("file", os.O_WRONLY, dir_fd=folder),
    lambda: os.open(f"/proc/self/fd/{{fd}}", os.O_WRONLY),
    lambda: os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=folder),
    lambda: os.unlink("file", dir_fd=folder),
):
    try:
        change()
    except OSError as error:
        assert error.errno == 30, error
    else:
        raise AssertionError("it was changed")
(Path({str(folder)!r}) / "file").chmod(0o600)  # its own path is as ever
writable, readable = own_mounts.memory(Path({str(folder)!r}))
os.close(os.open("x", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=writable))
assert os.listdir(readable) == ["x"]
"""
    folders = [sys.prefix, sys.base_prefix, *PATHS, str(folder)]
    change = [sys.executable, AS_USER, str(user), *folders, "--"] if user != os.getuid() else []
    done = subprocess.run(
        [*change, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if "PermissionError" in done.stderr and "own_mounts" in done.stderr and user:
        pytest.skip("this user may make no user namespace here")
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        own_mounts.read_only(tmp_path / "nowhere")
