from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache import reader
from hotplate.serving.streaming.audit import install_hook
from hotplate.serving.streaming.weights_clock import WeightsClock, weights_span
from tests.support.streaming.arriving import ArrivingBlob, ArrivingTree

DATA = os.urandom(100_000)
CAT = [
    sys.executable,
    "-c",
    "import sys; sys.stdout.write(str(len(open(sys.argv[1], 'rb').read())))",
]


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    install_hook()  # for the rest of this process, where nothing else is below HOTPLATE_TREES


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrivingTree:
    trees, home = tmp_path / "trees", tmp_path / "home"
    tree = ArrivingTree(trees / "digest")
    (home / "models" / "bert").mkdir(parents=True)
    (home / "models" / "bert" / "v1").symlink_to(tree.folder)
    monkeypatch.setattr(reader, "open_file", tree.open_file)
    monkeypatch.setenv("HOTPLATE_TREES", str(trees))
    monkeypatch.setenv("HOTPLATE_MODELS", str(home / "models"))
    monkeypatch.setenv("HOTPLATE_AGENT_SOCKET", "in this process")
    return tree


@pytest.fixture
def blob(tree: ArrivingTree) -> ArrivingBlob:
    return tree.add("model.safetensors", DATA)


@pytest.fixture
def path(blob: ArrivingBlob, tmp_path: Path) -> Path:
    """As a service sees it: through its own home."""
    return tmp_path / "home" / "models" / "bert" / "v1" / blob.path.name


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def read_by_os(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def read_by_map(path: Path) -> bytes:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        return view[:]


def read_by_copy(path: Path) -> bytes:
    copy = path.parents[4] / "copy"
    shutil.copyfile(path, copy)
    return copy.read_bytes()


def read_by_program(path: Path) -> bytes:
    shown = subprocess.run([*CAT, str(path)], check=True, capture_output=True, text=True)
    return DATA[: int(shown.stdout)]


def read_by_shell(path: Path) -> bytes:
    return subprocess.check_output(f"cat {path}", shell=True)


@pytest.mark.parametrize(
    "read",
    [Path.read_bytes, read_by_os, read_by_map, read_by_copy, read_by_program, read_by_shell],
    ids=lambda read: read.__name__,
)
def test_readers_wait_for_the_complete_file(
    blob: ArrivingBlob,
    path: Path,
    in_background: Callable[..., Future[Any]],
    read: Callable[[Path], bytes],
) -> None:
    result = in_background(read, path)
    assert blob.wait_until_blocked() == (0, 0)
    blob.release()
    assert not result.done(), "all bytes are there, but the path is still the placeholder"
    blob.link()
    assert result.result(8) == DATA


def test_a_program_that_names_no_model_does_not_wait(blob: ArrivingBlob) -> None:
    assert subprocess.check_output(["echo", "hi"]) == b"hi\n"
    assert os.waitstatus_to_exitcode(os.system("true")) == 0
    assert not blob.linked


def test_a_program_waits_when_its_folder_or_environment_names_a_model(
    blob: ArrivingBlob, path: Path, in_background: Callable[..., Future[Any]]
) -> None:
    count = ["sh", "-c", "cat ${MODEL:-.}/model.safetensors | wc -c"]
    by_folder = in_background(subprocess.check_output, count, cwd=path.parent)
    blob.wait_until_blocked()
    env = {**os.environ, "MODEL": str(path.parent)}
    by_env = in_background(subprocess.check_output, count, env=env)
    assert not by_folder.done()
    assert not by_env.done()
    blob.link()
    assert int(by_folder.result(8)) == int(by_env.result(8)) == len(DATA)


def test_a_file_that_cannot_be_had_raises_oserror(
    blob: ArrivingBlob, path: Path, in_background: Callable[..., Future[Any]]
) -> None:
    result = in_background(path.read_bytes)
    blob.wait_until_blocked()
    blob.lose()
    with pytest.raises(OSError, match="does not answer"):
        result.result(5)


def test_other_files_and_writes_are_left_alone(tree: ArrivingTree, tmp_path: Path) -> None:
    blob = tree.add("held.safetensors", DATA)
    (blob.path.parent / "config.json").write_text("")
    assert (blob.path.parent / "config.json").read_text() == ""
    elsewhere = tmp_path / "empty.safetensors"
    elsewhere.touch()
    assert elsewhere.read_bytes() == b""
    with blob.path.open("ab") as file:
        assert file.tell() == 0
    assert tree.opened == []


def test_a_complete_file_is_read_without_the_agent(
    tree: ArrivingTree, blob: ArrivingBlob, path: Path
) -> None:
    blob.link()
    assert path.read_bytes() == DATA
    assert tree.opened == []


def test_every_waiting_costs_one_lease_that_ends(
    blob: ArrivingBlob, tree: ArrivingTree, path: Path
) -> None:
    threading.Timer(0.05, blob.link).start()
    assert path.read_bytes() == DATA
    assert [file.closed for file in tree.opened] == [True]


def test_the_span_reaches_from_the_first_opening_to_the_last_wait(
    blob: ArrivingBlob, path: Path
) -> None:
    clock = WeightsClock()
    assert clock.span() is None
    clock.opened("a", 3)
    clock.opened("a", 3)
    clock.opened("b", 4)
    clock.waited()
    span = clock.span()
    assert span is not None
    assert span.start <= span.end
    assert span.size_bytes == 7
    threading.Timer(0.05, blob.link).start()
    path.read_bytes()
    waited = weights_span()
    assert waited is not None
    assert waited.end >= span.end + 0.04


def test_it_says_nothing_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """Modules are cleared one after the other, and what dies with one is heard by all hooks."""
    (tmp_path / "early.py").write_text(
        "import sys\n"
        "class Late:\n"
        "    def __del__(self, audit=sys.audit):\n"
        "        audit('cleanup')\n"
        "        audit('open', 'file', 'r', 0)\n"
        "late = Late()\n"
    )
    program = (
        "import sys, early\n"
        "from hotplate.serving.streaming import audit\n"
        "audit.install_hook()\n"
        "sys.kept = [early, audit]\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
