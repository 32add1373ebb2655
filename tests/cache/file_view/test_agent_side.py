"""The file view of a real agent, read by programs that know nothing of it."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.file_view import mounting as view_mount
from hotplate.cache.manifest import CHUNK_BYTES
from tests.support.cache.fakes import AgentProcess
from tests.support.cache.view_bench import Bench, ask, needs_mounts
from tests.support.patience import PATIENCE_S

pytestmark = needs_mounts


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("view"))
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def agent(bench: Bench) -> Iterator[AgentProcess]:
    with bench.start(stall_s=1.0) as agent:
        view = ask(agent, "status")["view"]
        if view["mount"] is None:
            pytest.skip(view["refusal"])
        yield agent
        assert agent.terminate() == 0
    assert not bench.mounted


def reader(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A program of its own: what waits in the kernel here would hold up the test's own loop."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_tree_looks_as_if_on_disk_and_comes_as_it_is_read(
    bench: Bench, agent: AgentProcess
) -> None:
    model = bench.model(agent, 1)
    reads = len(bench.origin.reads)
    names = ["bin", "empty", "link", "model.safetensors", "none", "one", "three"]
    assert sorted(os.listdir(model.root)) == names
    assert model.weights.stat().st_size == len(model.content)
    assert len(bench.origin.reads) == reads
    assert (model.root / "one").read_bytes() == b"one"
    assert (model.root / "three").read_bytes() == b"three"
    assert (model.root / "none").read_bytes() == b""
    assert len(bench.origin.reads) == reads + 1  # both lie in one blob
    assert subprocess.check_output([model.root / "link"]) == b"here\n"
    assert os.readlink(model.root / "link") == "bin/run.sh"
    stat = (model.root / "bin/run.sh").stat()
    assert (stat.st_mode & 0o777, stat.st_mtime) == (0o555, 1e9)
    assert not (model.root / "other").exists()
    for forbidden in (model.root / "new", model.weights):
        with pytest.raises(OSError) as refused:
            forbidden.write_bytes(b"")
        assert refused.value.errno == errno.EROFS
    assert ask(agent, "delete", model.digest)
    until(lambda: not model.root.exists())
    assert model.digest not in os.listdir(bench.mount / "trees")


def test_readers_wait_for_what_has_not_arrived_and_see_it_right(
    bench: Bench, agent: AgentProcess
) -> None:
    model = bench.model(agent, 2)
    bench.origin.hold(model.blob, 0, 1)
    with ThreadPoolExecutor(8) as pool, model.weights.open("rb", buffering=0) as first:
        end = pool.submit(os.pread, first.fileno(), 5, 2 * CHUNK_BYTES)
        assert end.result(PATIENCE_S) == model.content[-5:]  # though what is before it has not come
        whole = [pool.submit(model.weights.read_bytes) for _ in range(3)]
        copy = subprocess.Popen(["cp", model.weights, bench.folder / "copy"])
        mapped = reader(
            "import mmap, sys; f = open(sys.argv[1], 'rb');"
            "sys.stdout.buffer.write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])",
            model.weights,
        )
        killed = reader("import sys; open(sys.argv[1], 'rb').read()", model.weights)
        bench.origin.wait_for_read(model.blob, 1)
        assert not any(one.done() for one in whole) and copy.poll() is None
        killed.kill()
        assert killed.wait(PATIENCE_S) == -signal.SIGKILL  # a reader that waits can be killed
        killed.communicate()
        bench.origin.release()
        assert all(one.result(PATIENCE_S) == model.content for one in whole)
        assert copy.wait(PATIENCE_S) == 0 and (bench.folder / "copy").read_bytes() == model.content
        assert mapped.communicate(timeout=PATIENCE_S)[0] == model.content
        # The file is open through the kernel's cache, so a new reader reads it that way too.
        assert model.weights.read_bytes() == model.content
    with ExitStack() as closing:
        passed = closing.enter_context(model.weights.open("rb"))
        memory = closing.enter_context(mmap.mmap(passed.fileno(), 0, prot=mmap.PROT_READ))
        assert memory[:] == model.content == model.weights.read_bytes()
    assert [blob for blob, _ in bench.origin.reads].count(model.blob.digest) == 3


def test_what_cannot_be_had_is_an_error_and_then_tried_again(
    bench: Bench, agent: AgentProcess
) -> None:
    model = bench.model(agent, 3)
    bench.origin.failure = OriginUnavailable("the origin is down")
    mapped = reader(
        "import mmap, sys; f = open(sys.argv[1], 'rb');"
        "print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[0])",
        model.weights,
    )
    with pytest.raises(OSError) as refused:
        model.weights.read_bytes()
    assert refused.value.errno == errno.EIO
    assert mapped.communicate(timeout=PATIENCE_S)[0] == b"" and mapped.returncode != 0
    bench.origin.failure = None
    assert model.weights.read_bytes() == model.content


def test_pulled_files_are_seen_by_their_url(bench: Bench, agent: AgentProcess) -> None:
    for name in ("a.bin", "sub/b.bin"):
        (bench.folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.folder / "files" / name).write_bytes(name.encode())
    ask(agent, "pull", f"file://{bench.folder}/files")
    shown = bench.mount / "urls" / "file" / bench.folder.relative_to("/") / "files"
    assert (shown / "a.bin").read_bytes() == b"a.bin"
    assert (shown / "sub/b.bin").read_bytes() == b"sub/b.bin"
    (bench.folder / "files/a.bin").write_bytes(b"another")
    ask(agent, "pull", f"file://{bench.folder}/files/a.bin")
    until(lambda: (shown / "a.bin").read_bytes() == b"another")


def test_a_pulled_file_is_seen_at_once(bench: Bench, agent: AgentProcess) -> None:
    files = bench.folder / "one by one"
    files.mkdir()
    shown = bench.mount / "urls" / "file" / files.relative_to("/")
    for name in ("a.bin", "b.bin", "c.bin"):
        (files / name).write_bytes(name.encode())
        ask(agent, "pull", f"file://{files}/{name}")
        assert (shown / name).read_bytes() == name.encode()


def test_what_others_have_mounted_stays_and_trees_are_made_of_files(
    bench: Bench, agent: AgentProcess
) -> None:
    model = bench.model(agent, 5)
    with bench.start("other") as other:
        view = ask(other, "status")["view"]
        assert view["mount"] is None and "is mounted there" in view["refusal"]
        tree = ask(other, "tree", model.digest, wait="view")
        assert tree.complete and not Path(tree.root).is_relative_to(bench.mount)
        assert Path(tree.root, "three").read_bytes() == b"three"
    assert (model.root / "three").read_bytes() == b"three"


def test_a_killed_agent_ends_its_readers_wait_and_leaves_no_mount(tmp_path: Path) -> None:
    with closing(Bench(tmp_path)) as bench, bench.start() as agent:
        model = bench.model(agent, 4)
        bench.origin.hold(model.blob, 1)
        waiting = reader("import sys; open(sys.argv[1], 'rb').read()", model.weights)
        bench.origin.wait_for_read(model.blob, 1)
        tmp_path = tmp_path.rename(tmp_path.with_suffix(".moved"))
        agent.kill()
        assert b"Error" in waiting.communicate(timeout=PATIENCE_S)[1]
        until(lambda: f"{tmp_path}/view" not in {one.folder for one in view_mount.mounts()})


def test_a_leftover_mount_is_replaced_and_so_is_a_killed_daemon(tmp_path: Path) -> None:
    with closing(Bench(tmp_path)) as bench:
        bench.mount.mkdir()
        device = os.open(view_mount.DEVICE, os.O_RDWR)
        view_mount.mount(device, bench.mount, f"hotplate:{tmp_path}/data")
        os.close(device)  # as the kernel does for a daemon that is killed
        assert bench.mounted and _names(bench.mount) == []
        with bench.start() as agent:
            assert len(view_mount.mounted_at(bench.mount)) == 1
            assert (tmp_path / "data" / "view").resolve() == bench.mount
            (daemon,) = _children(agent.process.pid)
            assert _names(bench.mount) == ["trees", "urls"]
            os.kill(daemon, signal.SIGKILL)
            until(lambda: _children(agent.process.pid) not in ([], [daemon]))
            until(lambda: _names(bench.mount) == ["trees", "urls"])
            agent.terminate()
        assert not bench.mounted


def test_leftover_mounts_of_other_agents_are_removed_if_no_daemon_serves_them(
    tmp_path: Path,
) -> None:
    devices = {}
    for name in ("dead", "slow"):
        (tmp_path / name).mkdir()
        devices[name] = os.open(view_mount.DEVICE, os.O_RDWR)
        view_mount.mount(devices[name], tmp_path / name, f"hotplate:/{tmp_path.name}/{name}")
    os.close(devices["dead"])
    try:
        with closing(Bench(tmp_path)) as bench, bench.start() as agent:
            assert not view_mount.mounted_at(tmp_path / "dead")
            assert view_mount.mounted_at(tmp_path / "slow"), "it has a daemon, which may answer yet"
            agent.terminate()
    finally:
        os.close(devices["slow"])
        view_mount.sweep()
    assert not view_mount.mounted_at(tmp_path / "slow")


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    over = threading.Event()
    timer = threading.Timer(timeout_s, over.set)
    timer.start()
    try:
        while not condition():
            assert not over.wait(0.02), "it did not come about"
    finally:
        timer.cancel()
