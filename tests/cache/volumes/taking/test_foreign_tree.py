"""Whatever a build leaves, and whatever it does meanwhile: it is read as it is, or one sentence."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.cache.errors import BadEnvironment
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.volumes.taking.foreign_tree import ForeignTree, TreeLimits
from hotplate.machine import foreign_folder
from tests.support.cache.fakes import random_bytes

HOME = "/hotplate/env"
LIMITS = TreeLimits(size_bytes=100 << 20, entries=50, path_bytes=200, depth=5)
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to make what only root makes")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
    (folder / "lib").mkdir()
    (folder / "lib" / "code.py").write_bytes(b"x = 1\n")
    (tmp_path / "secret").write_bytes(b"the cluster's token")
    return folder


def opened(root: Path, limits: TreeLimits = LIMITS) -> ForeignTree:
    return ForeignTree(root, HOME, os.getuid(), limits)


def read(tree: ForeignTree) -> dict[str, bytes]:
    return {path: b"".join(tree.pieces(path)) for path in tree.sizes}


def refusal(root: Path, limits: TreeLimits = LIMITS) -> str:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BadEnvironment) as refused, opened(root, limits) as tree:
        read(tree)
    assert set(os.listdir("/proc/self/fd")) == before
    sentence = str(refused.value)
    assert len(sentence) < 1000 and "\n" not in sentence
    return sentence


def test_files_folders_and_links_are_read_as_they_are(root: Path) -> None:
    large = random_bytes(2 * CHUNK_BYTES + 5, 1)
    (root / "lib" / "large.so").write_bytes(large)
    (root / "lib" / "empty").write_bytes(b"")
    (root / "lib64").symlink_to("lib")
    (root / "share" / "x").mkdir(parents=True)
    (root / "bin" / "tool").chmod(0o755)
    os.utime(root / "lib" / "code.py", (1e9, 1e9))
    with opened(root) as tree:
        assert read(tree) == {
            "bin/tool": b"#!/bin/sh\n",
            "lib/code.py": b"x = 1\n",
            "lib/large.so": large,
            "lib/empty": b"",
        }
        assert tree.links == {"lib64": "lib"}
        modes = {path: entry.mode for path, entry in tree.entries.items()}
        assert modes["bin/tool"] == modes["lib"] == modes["share/x"] == 0o755
        assert modes["lib/code.py"] == 0o644
        assert tree.entries["lib/code.py"].mtime == 1e9
        assert tree.entries["share"].is_folder and tree.entries["lib64"].link == "lib"
        pieces = [len(piece) for piece in tree.pieces("lib/large.so")]
        assert pieces == [CHUNK_BYTES, CHUNK_BYTES, 5]
        assert tree.head("bin/tool", 2) == b"#!"


def test_links_to_its_own_place_become_relative(root: Path) -> None:
    (root / "bin" / "x").symlink_to(f"{HOME}/lib/x")
    (root / "whole").symlink_to(HOME)
    (root / "lib" / "up").symlink_to(f"{HOME}/../../etc")
    (root / "other").symlink_to(f"{HOME}x/y")
    with opened(root) as tree:
        assert tree.links == {
            "bin/x": "../lib/x",
            "whole": ".",
            "lib/up": "../../../etc",
            "other": f"{HOME}x/y",
        }


def test_a_link_is_never_followed(root: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    with opened(root) as tree:
        assert tree.links == {"file": f"{tmp_path}/secret", "folder": str(tmp_path)}
        assert set(tree.sizes) == {"bin/tool", "lib/code.py"}


def test_the_folder_itself_may_be_no_link(root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)
    assert "was changed while it was read" in refusal(link)


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o6711])
def test_no_file_gives_another_user_s_rights(root: Path, mode: int) -> None:
    (root / "bin" / "tool").chmod(mode)
    (root / "lib").chmod(0o2777)
    with opened(root) as tree:
        assert {tree.entries[path].mode for path in ("bin/tool", "lib")} == {0o755}


@needs_root
def test_what_its_own_user_may_not_read_is_read(root: Path) -> None:
    (root / "lib" / "code.py").chmod(0)
    (root / "bin").chmod(0)
    with opened(root) as tree:
        assert read(tree)["lib/code.py"] == b"x = 1\n"
        assert tree.entries["lib/code.py"].mode == 0o644


@needs_root
@pytest.mark.parametrize("place", ["lib/code.py", "lib", "link"])
def test_what_somebody_else_has_made_is_refused(root: Path, place: str) -> None:
    """As a hard link to a file of another user is."""
    (root / "link").symlink_to("lib")
    os.chown(root / place, 12345, 12345, follow_symlinks=False)
    assert refusal(root) == f"'{place}' is not the build's own: somebody else has made it"


@needs_root
def test_a_hard_link_to_somebody_elses_file_is_refused(root: Path, tmp_path: Path) -> None:
    os.chown(tmp_path / "secret", 12345, 12345)
    os.link(tmp_path / "secret", root / "mine")
    assert "'mine' is not the build's own" in refusal(root)


def test_hard_links_of_its_own_files_are_files(root: Path) -> None:
    os.link(root / "lib" / "code.py", root / "lib" / "again.py")
    with opened(root) as tree:
        assert read(tree)["lib/again.py"] == read(tree)["lib/code.py"]


def special(make: Callable[[Path], None]) -> Callable[[Path], str]:
    def made(root: Path) -> str:
        make(root / "lib" / "special")
        return refusal(root)

    return made


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(path.parent)
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def test_a_pipe_is_refused_and_not_waited_for(root: Path) -> None:
    assert "'lib/special' is a pipe" in special(os.mkfifo)(root)


def test_a_socket_is_refused(root: Path) -> None:
    assert "'lib/special' is a socket" in special(bound_socket)(root)


@needs_root
@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_a_device_is_refused(root: Path, kind: int) -> None:
    zero = os.makedev(1, 5)
    assert "'lib/special' is a device" in special(lambda at: os.mknod(at, kind | 0o666, zero))(root)


def test_too_many_names_are_refused_before_all_are_read(root: Path) -> None:
    (root / "many").mkdir()
    for number in range(500):
        (root / "many" / str(number)).touch()
    assert "more than the 50 files, folders and links" in refusal(root)


def test_a_file_that_says_that_it_has_a_hundred_tib_is_refused(root: Path) -> None:
    path = root / "lib" / "sparse"
    path.touch()
    os.truncate(path, 15 << 40)
    assert "more than the 100 MiB that an environment may have, of which 'lib/sparse'" in refusal(
        root
    )


def test_many_files_may_not_have_more_together(root: Path) -> None:
    for number in range(11):
        path = root / f"{number}"
        path.touch()
        os.truncate(path, 10 << 20)
    assert "more than the 100 MiB" in refusal(root)


def test_deep_folders_are_refused(root: Path) -> None:
    (root / "1/2/3/4").mkdir(parents=True)
    opened(root).close()
    (root / "1/2/3/4/5/6").mkdir(parents=True)
    assert refusal(root) == "'1/2/3/4/5/' lies 6 folders deep (limit 5)"


def test_thousands_of_folders_below_each_other_are_refused(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert "folders deep" in refusal(root)
    foreign_folder.remove_tree(root)  # which whoever removes the rest of the test could not


def test_long_paths_are_refused(root: Path) -> None:
    (root / ("n" * 100) / ("m" * 100)).mkdir(parents=True)
    assert "has 201 bytes (limit 200)" in refusal(root)


def test_long_targets_of_links_are_refused(root: Path) -> None:
    (root / "link").symlink_to("x/" * 101)
    assert "where the link 'link' leads to has 202 bytes (limit 200)" in refusal(root)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1bb", "a\tb"])
def test_a_name_with_a_line_break_is_refused(root: Path, name: str) -> None:
    (root / name).touch()
    assert "has a line break or another control character" in refusal(root)


def test_a_name_that_is_no_text_is_refused(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).touch()
    assert "is not UTF-8" in refusal(root)
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).unlink()
    (root / "link").symlink_to(os.fsdecode(b"caf\xe9"))
    assert "where the link 'link' leads to is not UTF-8" in refusal(root)


@pytest.mark.parametrize(
    "name", ["a b", "a\\b", "ä", "-rf", "'\"", ".hidden", "*", "~", "%s", "🐍"]
)
def test_other_names_are_taken(root: Path, name: str) -> None:
    (root / name).write_bytes(b"content")
    with opened(root) as tree:
        assert read(tree)[name] == b"content"


def test_times_that_nobody_else_may_know_are_not_kept(root: Path) -> None:
    os.utime(root / "lib" / "code.py", (-1e6, -1e6))
    os.utime(root / "bin" / "tool", (1e10, 1e10))
    with opened(root) as tree:
        assert tree.entries["lib/code.py"].mtime == 0
        assert tree.entries["bin/tool"].mtime == 1 << 32


def swapped_for_link(root: Path) -> None:
    (root / "lib" / "code.py").unlink()
    (root / "lib" / "code.py").symlink_to(root.parent / "secret")


def folder_swapped_for_link(root: Path) -> None:
    (root / "lib").rename(root / "old")
    (root.parent / "code.py").write_bytes(b"secret")
    (root / "lib").symlink_to(root.parent)


def folder_swapped(root: Path) -> None:
    (root / "lib").rename(root / "old")
    (root / "lib").mkdir()
    (root / "lib" / "code.py").write_bytes(b"x = 2\n")


def rewritten_with_the_old_time(root: Path) -> None:
    path = root / "lib" / "code.py"
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the disk's clock has ticks
        path.write_bytes(b"x = 2\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swapped_for_pipe(root: Path) -> None:
    (root / "lib" / "code.py").unlink()
    os.mkfifo(root / "lib" / "code.py")


CHANGES: list[Callable[[Path], object]] = [
    lambda root: (root / "lib" / "code.py").unlink(),
    lambda root: (root / "lib" / "code.py").write_bytes(b"x = 11\n"),
    lambda root: os.truncate(root / "lib" / "code.py", 1),
    swapped_for_link,
    folder_swapped_for_link,
    folder_swapped,
    rewritten_with_the_old_time,
    swapped_for_pipe,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_something_else_when_it_is_read_is_refused(
    root: Path, change: Callable[[Path], object]
) -> None:
    with opened(root) as tree:
        change(root)
        with pytest.raises(BadEnvironment, match=r"'lib/code.py' was changed while it was read"):
            read(tree)


@pytest.mark.parametrize("grow", [True, False])
def test_a_file_that_grows_or_shrinks_while_it_is_read_is_refused(root: Path, grow: bool) -> None:
    path = root / "lib" / "large.so"
    path.write_bytes(bytes(2 * CHUNK_BYTES))
    with opened(root) as tree:
        pieces = tree.pieces("lib/large.so")
        next(pieces)
        os.truncate(path, 3 * CHUNK_BYTES if grow else CHUNK_BYTES + 1)
        with pytest.raises(BadEnvironment, match=r"'lib/large.so' was changed while it was read"):
            for _ in pieces:
                pass
