"""Folders that hostile programs write: nothing there leads out, waits, or costs much."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotplate.machine import foreign_folder
from hotplate.machine.foreign_folder import ForeignFolder, open_file, remove_tree

SECRET = b"the platform's own"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder of ours with a file in it."""
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "file").write_bytes(SECRET)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "theirs"
    made.mkdir()
    return made


def a_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


MADE: dict[str, Callable[[Path, Path], object]] = {
    "pipe": lambda path, _: os.mkfifo(path),
    "link": lambda path, ours: path.symlink_to(ours / "file"),
    "link to an endless file": lambda path, _: path.symlink_to("/dev/zero"),
    "link to itself": lambda path, _: path.symlink_to(path),
    "folder": lambda path, _: path.mkdir(),
    "socket": a_socket,
    "nothing": lambda path, _: None,
}


@pytest.mark.parametrize("kind", MADE)
def test_only_regular_files_are_read(kind: str, folder: Path, secret: Path) -> None:
    MADE[kind](folder / "file", secret)
    with ForeignFolder.open(folder) as theirs, pytest.raises(OSError):
        theirs.read("file", 1 << 20)
    with pytest.raises(OSError):
        open_file(folder / "file")


def test_a_folder_that_is_a_link_is_not_entered(folder: Path, secret: Path) -> None:
    (folder / "below").symlink_to(secret)
    with ForeignFolder.open(folder) as theirs:
        for name in ("below/file", "../ours/file", str(secret / "file"), "./below/file", ""):
            with pytest.raises(OSError):
                theirs.read(name, 100)
        with pytest.raises(OSError):
            theirs.folder("below")
    with pytest.raises(OSError):
        ForeignFolder.open(folder / "below")


def test_where_a_link_leads_to_is_told_without_going_there(folder: Path, secret: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "link").symlink_to(secret)
    (folder / "way").symlink_to(folder / "a")
    with ForeignFolder.open(folder) as theirs:
        assert theirs.link("a/b/link") == str(secret)
        for name in ("way/b/link", "a/b", "a/b/link/file", "../link", "none"):
            with pytest.raises(OSError):
                theirs.link(name)


def test_no_more_is_read_than_was_asked_for(folder: Path) -> None:
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    (folder / "small").write_bytes(b"abc")
    with ForeignFolder.open(folder) as theirs:
        assert theirs.read("sparse", 1000) == bytes(1000)
        assert theirs.read("small", 1000) == b"abc"


def test_a_file_that_somebody_holds_a_lease_on_does_not_wait(folder: Path) -> None:
    """Whoever opens such a file waits until its holder lets go: 45 s by the kernel's default."""
    (folder / "log").write_bytes(b"line\n")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, os, signal, sys\n"
            "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
            f"fd = os.open({str(folder / 'log')!r}, os.O_RDWR)\n"
            f"fcntl.fcntl(fd, {fcntl.F_SETLEASE}, {fcntl.F_WRLCK})\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            open_file(folder / "log")
    finally:
        holder.communicate()


def test_a_listing_ends_at_its_limit(folder: Path) -> None:
    for number in range(50):
        (folder / str(number)).touch()
    with ForeignFolder.open(folder) as theirs:
        assert len(theirs.names(20)) == 20
        assert len(theirs.names(100)) == 50
        with pytest.raises(OSError, match="too many files"):
            list(theirs.files(49, 1000))


def test_files_are_those_that_are_whole_and_theirs(folder: Path, secret: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_bytes(b"1234")
    (folder / "file").write_bytes(b"12")
    (folder / "elsewhere").hardlink_to(secret / "file")
    for kind, make in MADE.items():
        make(folder / kind, secret)
    with ForeignFolder.open(folder) as theirs:
        found = {name: os.read(fd, 100) for name, fd in theirs.files(100, 1000)}
        assert found == {"a/b/file": b"1234", "file": b"12"}
        with pytest.raises(OSError, match="too many bytes"):
            list(theirs.files(100, 5))


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def dig(folder: Path, depth: int) -> None:
    """Folders below each other, deeper than any path may be long."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


@pytest.mark.usefixtures("few_descriptors")
def test_what_is_ten_thousand_folders_deep_is_refused_and_removed(folder: Path) -> None:
    dig(folder, 10_000)
    with ForeignFolder.open(folder) as theirs, pytest.raises(OSError, match="nested folders"):
        list(theirs.files(1 << 20, 1 << 20))
    remove_tree(folder)
    assert not folder.exists()


def test_a_removal_follows_no_link_and_heeds_no_mode(folder: Path, secret: Path) -> None:
    (folder / "shut/below").mkdir(parents=True)
    (folder / "shut/below/file").touch()
    (folder / "shut/link").symlink_to(secret)
    (folder / "link to ours").symlink_to(secret)
    for number in range(2500):
        (folder / f"wide/{number}/x").mkdir(parents=True)
    (folder / "shut/below").chmod(0)
    (folder / "shut").chmod(0)
    for kind, make in MADE.items():
        make(folder / kind, secret)
    remove_tree(folder)
    assert not folder.exists()
    assert (secret / "file").read_bytes() == SECRET


def test_only_the_link_is_removed_where_a_tree_was(folder: Path, secret: Path) -> None:
    (folder / "tree").symlink_to(secret)
    remove_tree(folder / "tree")
    remove_tree(folder / "tree")  # there is none
    assert list(folder.iterdir()) == []
    assert (secret / "file").read_bytes() == SECRET


def test_a_removal_survives_whoever_still_writes(folder: Path, secret: Path) -> None:
    """Folders turn into links and back while they are removed."""
    over = threading.Event()

    def turn() -> None:
        while not over.is_set():
            for number in range(20):
                one = folder / str(number)
                try:
                    one.mkdir()
                    (one / "file").touch()
                    one.rename(folder / f"{number}.was")
                    one.symlink_to(secret)
                    one.unlink()
                except OSError:
                    continue

    turning = threading.Thread(target=turn)
    turning.start()
    try:
        for _ in range(20):
            try:
                remove_tree(folder, limit_s=0.2)
            except OSError:
                continue
            folder.mkdir()
    finally:
        over.set()
        turning.join()
    assert (secret / "file").read_bytes() == SECRET
    remove_tree(folder)
    assert not folder.exists()


def test_only_regular_files_are_moved(folder: Path, secret: Path, tmp_path: Path) -> None:
    (folder / "from").mkdir()
    (folder / "to").mkdir()
    (folder / "from/counts").write_bytes(b"12")
    (folder / "from/link").symlink_to(secret / "file")
    (folder / "from/below").mkdir()
    with (
        ForeignFolder.open(folder) as theirs,
        theirs.folder("from") as source,
        theirs.folder("to") as target,
    ):
        source.move("counts", target)
        for name in ("link", "below", "../from/link", "absent"):
            with pytest.raises(OSError):
                source.move(name, target)
    assert [path.name for path in (folder / "to").iterdir()] == ["counts"]


def test_a_look_has_an_end(folder: Path) -> None:
    (folder / "file").touch()
    with ForeignFolder.open(folder, limit_s=-1.0) as theirs:
        with pytest.raises(TimeoutError):
            theirs.read("file", 1)
        with pytest.raises(TimeoutError):
            list(theirs.files(10, 10))
    with pytest.raises(TimeoutError):
        remove_tree(folder, limit_s=-1.0)


async def test_looks_do_not_wait_for_removals() -> None:
    go_on = threading.Event()
    removals = [
        asyncio.create_task(foreign_folder.aside_for_long(go_on.wait, 60.0)) for _ in range(8)
    ]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(foreign_folder.aside(len, "abc"), 10.0) == 3
    go_on.set()
    await asyncio.gather(*removals)


def test_a_folder_is_made_where_no_link_is(folder: Path, secret: Path) -> None:
    with ForeignFolder.open(folder) as theirs:
        assert theirs.make_folder("tmp", 0o1777) == os.getuid()
        assert theirs.make_folder("tmp", 0o1777) == os.getuid()
        assert (folder / "tmp").stat().st_mode & 0o7777 == 0o1777
        assert theirs.make_folder("tmp", 0o755, unless_owned_by=os.getuid()) == os.getuid()
        assert (folder / "tmp").stat().st_mode & 0o7777 == 0o1777
        (folder / "tmp").rmdir()
        secret.chmod(0o700)
        (folder / "tmp").symlink_to(secret)
        with pytest.raises(OSError):
            theirs.make_folder("tmp", 0o1777)
    assert secret.stat().st_mode & 0o7777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_given_to_a_user_is_what_lies_there_and_has_no_other_name(
    folder: Path, secret: Path
) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "file").touch()
    (folder / "link").symlink_to(secret / "file")
    (folder / "name").hardlink_to(secret / "file")
    with ForeignFolder.open(folder) as theirs:
        theirs.give(4711, linked=False)
    given = {path for path in (folder, *folder.rglob("*")) if path.lstat().st_uid == 4711}
    assert given == {folder, folder / "below", folder / "below" / "file", folder / "link"}
    assert (secret / "file").stat().st_uid == 0
    with ForeignFolder.open(folder) as theirs:
        theirs.give(0, linked=True)
    assert {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {0}


def test_what_vanishes_while_it_is_given_is_left_out(tmp_path: Path) -> None:
    """As a build's temporary folders do while another build of its organization begins."""
    stop = threading.Event()
    vanished = 0

    def come_and_go() -> None:
        nonlocal vanished
        while not stop.is_set():
            for number in range(50):
                (tmp_path / f"{number}" / "below").mkdir(parents=True)
                (tmp_path / f"{number}" / "file").touch()
            remove_all(tmp_path)
            vanished += 50

    def remove_all(folder: Path) -> None:
        for number in range(50):
            shutil.rmtree(folder / f"{number}")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(300):
            with ForeignFolder.open(tmp_path) as folder:
                folder.give(os.geteuid(), linked=True)
    finally:
        stop.set()
        thread.join()
    assert vanished > 0
