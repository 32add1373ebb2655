from __future__ import annotations

import errno
import mmap
import os
import socket
from collections.abc import Iterator

import pytest

from hotplate.cache.arena import Arena, Region, memory_limit_bytes
from hotplate.cache.errors import NoSpace

SIZE = 1 << 20


@pytest.fixture
def region() -> Iterator[Region]:
    arena = Arena(SIZE)
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


def refused(action: object) -> bool:
    """Whether the kernel says no, and not because something else is wrong."""
    assert callable(action)
    try:
        action()
    except OSError as exc:
        return exc.errno in (errno.EPERM, errno.EACCES, errno.EBADF)
    return False


def test_a_receiver_can_neither_write_nor_map_for_writing(region: Region, lent: int) -> None:
    region.view[0] = 1
    assert os.pread(lent, 1, 0) == b"\x01"
    assert refused(lambda: os.pwrite(lent, b"x", 0))
    assert refused(lambda: mmap.mmap(lent, SIZE))
    assert region.view[0] == 1


def test_a_receiver_that_opens_it_again_can_write_no_more(region: Region, lent: int) -> None:
    path = f"/proc/self/fd/{lent}"
    again = os.open(path, os.O_RDWR)
    try:
        assert refused(lambda: os.pwrite(again, b"x", 0))
        assert refused(lambda: mmap.mmap(again, SIZE))
        assert refused(lambda: os.ftruncate(again, 0))
        assert refused(lambda: os.ftruncate(again, 2 * SIZE))
    finally:
        os.close(again)
    assert refused(lambda: os.truncate(path, 0))
    assert region.view[0] == 0 and os.fstat(lent).st_size == SIZE


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


def test_released_memory_stays_with_who_maps_it() -> None:
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
