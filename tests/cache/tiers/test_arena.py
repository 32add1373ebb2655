from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.cache.errors import NoSpace
from hotplate.cache.tiers.arena import Arena, Region, huge_mount, memory_limit_bytes
from hotplate.cache.tiers.protected_file import HugeMount

SIZE = 1 << 20


@pytest.fixture(params=["sealed", "mounted"])
def mount(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HugeMount | None]:
    if request.param == "sealed":
        yield None
        return
    mount = huge_mount(tmp_path)
    if mount is None:
        pytest.skip("this machine does not let us mount a tmpfs")
    yield mount
    mount.close()


@pytest.fixture
def region(mount: HugeMount | None) -> Iterator[Region]:
    arena = Arena(SIZE, mount)
    region = arena.allocate("f" * 64, SIZE)
    yield region
    arena.release(region)
    assert arena.used_bytes == 0


@pytest.fixture
def lent(region: Region) -> Iterator[int]:
    """The descriptor as another process gets it: over a socket."""
    ours, theirs = socket.socketpair()
    fd = region.lend()
    with ours, theirs:
        socket.send_fds(ours, [b"x"], [fd])
        _, (received,), _, _ = socket.recv_fds(theirs, 1, 1)
    os.close(fd)
    yield received
    os.close(received)


PUNCH_HOLE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE."""

_libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd: int, mode: int) -> None:
    if _libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(SIZE)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def map_and_protect(fd: int) -> int:
    """The error of asking to write to a shared map that was made to be read."""
    size = ctypes.c_size_t(SIZE)
    _libc.mmap.restype = ctypes.c_void_p
    address = ctypes.c_void_p(
        _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    )
    try:
        writable = _libc.mprotect(address, size, mmap.PROT_READ | mmap.PROT_WRITE)
        return ctypes.get_errno() if writable < 0 else 0
    finally:
        _libc.munmap(address, size)


def refused(action: object) -> bool:
    """Whether the kernel says no, and not because something else is wrong."""
    assert callable(action)
    try:
        action()
    except OSError as exc:
        return exc.errno in (errno.EPERM, errno.EACCES, errno.EBADF, errno.EROFS)
    return False


def test_a_receiver_can_neither_write_nor_map_for_writing(region: Region, lent: int) -> None:
    region.view[0] = 1
    assert os.pread(lent, 1, 0) == b"\x01"
    assert refused(lambda: os.pwrite(lent, b"x", 0))
    assert refused(lambda: mmap.mmap(lent, SIZE))
    assert region.view[0] == 1


def test_a_receiver_that_opens_it_again_can_write_no_more(region: Region, lent: int) -> None:
    path = f"/proc/self/fd/{lent}"
    try:
        again = os.open(path, os.O_RDWR)
    except OSError as exc:
        assert exc.errno == errno.EROFS
        again = os.open(path, os.O_RDONLY)
    try:
        assert refused(lambda: os.pwrite(again, b"x", 0))
        assert refused(lambda: mmap.mmap(again, SIZE))
        assert refused(lambda: fallocate(again, PUNCH_HOLE))
        assert refused(lambda: os.posix_fallocate(again, 0, 2 * SIZE))
        for size in (0, 2 * SIZE):
            with pytest.raises(OSError, match=r"not permitted|Invalid argument|Read-only"):
                os.ftruncate(again, size)
    finally:
        os.close(again)
    assert refused(lambda: os.truncate(path, 0))
    assert map_and_protect(lent) == errno.EACCES
    assert region.view[0] == 0 and os.fstat(lent).st_size == SIZE


def test_our_mount_is_in_no_ones_way(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    mount = huge_mount(tmp_path)
    if mount is None:
        pytest.skip("this machine does not let us mount a tmpfs")
    file = mount.create(SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    file.close()
    mount.close()


def test_the_agent_still_writes_through_its_view(region: Region, lent: int) -> None:
    region.reserve(0, SIZE)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"over a socket")
        assert theirs.recv_into(region.view[:13]) == 13
    assert os.pread(lent, 13, 0) == b"over a socket"
    source = os.memfd_create("file")
    os.write(source, b"out of a file")
    assert os.preadv(source, [region.view[4096 : 4096 + 13]], 0) == 13
    os.close(source)
    assert os.pread(lent, 13, 4096) == b"out of a file"


def test_a_private_map_is_copy_on_write(region: Region, lent: int) -> None:
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    with (
        mmap.mmap(lent, SIZE, mmap.MAP_PRIVATE, protection) as mine,
        mmap.mmap(lent, SIZE, mmap.MAP_PRIVATE, protection) as other,
    ):
        region.view[0] = 1
        mine[0] = 2
        assert (mine[0], other[0], region.view[0]) == (2, 1, 1)
        region.view[4096] = 3  # what arrives later is seen
        assert mine[4096] == 3


def test_the_limit_is_kept_and_named() -> None:
    arena = Arena(3 * SIZE)
    first = arena.allocate("a", 2 * SIZE)
    assert arena.lacks(2 * SIZE) == SIZE
    with pytest.raises(NoSpace, match=f"blob b needs {2 * SIZE} bytes, {2 * SIZE} of {3 * SIZE}"):
        arena.allocate("b", 2 * SIZE)
    arena.release(first)
    arena.release(arena.allocate("b", 2 * SIZE))


def test_released_memory_stays_with_the_process_that_maps_it() -> None:
    arena = Arena(SIZE)
    region = arena.allocate("a", SIZE)
    region.view[0] = 9
    fd = region.lend()
    with mmap.mmap(fd, SIZE, mmap.MAP_PRIVATE, mmap.PROT_READ) as mine:
        os.close(fd)
        arena.release(region)
        assert mine[0] == 9


def test_the_default_limit_is_within_the_machine() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory_limit_bytes() <= total // 4


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/a/b\n", {"a/memory.max": 8 << 20, "a/b/memory.max": "max"}),
        ("0::/a/b\n", {"memory.max": 8 << 20}),
        ("4:cpu,memory:/a/b\n3:cpuset:/\n", {"memory/a/memory.limit_in_bytes": 8 << 20}),
        ("", {"memory/memory.limit_in_bytes": 8 << 20}),
        ("0::/a\n", {"a/memory.max": 9 << 20, "memory.max": 8 << 20}),
    ],
    ids=["v2, above", "v2, container", "v1, above", "v1, container", "the smaller one"],
)
def test_the_default_limit_is_a_quarter_of_what_the_control_groups_allow(
    tmp_path: Path, groups: str, limits: dict[str, int | str]
) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
    for name, limit in limits.items():
        path = tmp_path / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    assert memory_limit_bytes(tmp_path) == 2 << 20
