from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from hotplate.cache.file_view.fuse import OPEN_PASSES_THROUGH
from hotplate.cache.file_view.inodes import Inode, Inodes
from hotplate.cache.file_view.open_files import OpenFiles
from hotplate.cache.manifest import CHUNK_BYTES, Manifest, ManifestEntry
from tests.support.cache.fakes import blob_of

SIZE = CHUNK_BYTES + 10
CONTENT = bytes(range(256)) * (SIZE // 256) + bytes(10)


class FakeKernel:
    """Keeps answers by request."""

    def __init__(self) -> None:
        self.answers: dict[int, bytes | int] = {}
        self.backings: list[int] = []

    def reply(self, unique: int, *parts: bytes | memoryview) -> None:
        assert unique not in self.answers
        self.answers[unique] = b"".join(parts)

    def refuse(self, unique: int, error: int) -> None:
        assert unique not in self.answers
        self.answers[unique] = error

    def back(self, fd: int) -> int:
        self.backings.append(len(self.backings) + 1)
        return self.backings[-1]

    def unback(self, backing: int) -> None:
        self.backings.remove(backing)

    def opened(self, unique: int) -> tuple[int, bool]:
        """Handle, and whether the file is passed through."""
        answer = self.answers[unique]
        assert isinstance(answer, bytes)
        passed = int.from_bytes(answer[8:12], "little") & OPEN_PASSES_THROUGH
        return int.from_bytes(answer[:8], "little"), bool(passed)


class Bench:
    def __init__(self) -> None:
        self.kernel = FakeKernel()
        self.sent: list[dict[str, Any]] = []
        self.files = OpenFiles(self.kernel, self.sent.append)
        entries = (
            ManifestEntry("file", blob=blob_of(CONTENT)),
            ManifestEntry("one", blob=blob_of(CONTENT[:20]), part=(0, 5)),
            ManifestEntry("two", blob=blob_of(CONTENT[:20]), part=(5, 15)),
        )
        root = Inodes().add("tree", Manifest(entries)).root
        assert root.children is not None
        self.nodes: dict[bytes, Inode] = root.children

    def lend(self, lease: int, content: bytes, done: list[int] | None = None) -> None:
        fd = os.memfd_create("lent")
        os.write(fd, content)
        complete = done is None
        message = {"lease": lease, "size": len(content), "complete": complete, "done": done}
        self.files.receive(message, fd)

    def open(self, unique: int, name: bytes) -> tuple[int, bool]:
        self.files.open(unique, self.nodes[name])
        return self.kernel.opened(unique)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_read_waits_for_its_chunks_and_no_others(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"file"])
    bench.files.open(2, bench.nodes[b"file"])
    assert bench.sent == [{"open": 1, "tree": "tree", "path": "file"}]
    bench.lend(1, CONTENT, done=[1])
    handle, passed = bench.kernel.opened(1)
    assert not passed and bench.kernel.opened(2)[0] != handle
    bench.files.read(3, handle, CHUNK_BYTES, 100)
    bench.files.read(4, handle, CHUNK_BYTES - 5, 100)
    bench.files.read(5, handle, 0, 5)
    assert bench.kernel.answers[3] == CONTENT[-10:]
    assert not {4, 5} & bench.kernel.answers.keys()
    assert bench.sent[1:] == [{"lease": 1, "want": [0]}]
    bench.files.receive({"lease": 1, "done": [0]}, None)
    assert bench.kernel.answers[4] == CONTENT[CHUNK_BYTES - 5 :]
    assert bench.kernel.answers[5] == CONTENT[:5]


def test_a_file_is_passed_through_once_no_program_has_it_open_otherwise(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"file"])
    bench.lend(1, CONTENT, done=[1])
    handle, _ = bench.kernel.opened(1)
    bench.files.receive({"lease": 1, "done": [0]}, None)
    cached, passed = bench.open(2, b"file")
    assert not passed  # not both ways at once
    for number in (handle, cached):
        bench.files.release(number)
    assert bench.sent[-1] == {"close": 1}
    bench.files.open(3, bench.nodes[b"file"])
    bench.lend(2, CONTENT)
    first, passed = bench.kernel.opened(3)
    second, passed_too = bench.open(4, b"file")
    assert passed and passed_too and bench.kernel.backings == [1]
    bench.files.release(first)
    assert bench.kernel.backings == [1]
    bench.files.release(second)
    assert bench.kernel.backings == []


def test_an_interrupted_request_is_answered_at_once(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"file"])
    assert bench.files.interrupt(1) and not bench.files.interrupt(1)
    assert bench.kernel.answers[1] == errno.EINTR
    assert bench.sent[-1] == {"close": 1}
    bench.lend(1, CONTENT)  # comes too late, and is closed
    bench.files.open(2, bench.nodes[b"file"])
    bench.lend(2, CONTENT, done=[])
    handle, _ = bench.kernel.opened(2)
    bench.files.read(3, handle, 0, 5)
    assert bench.files.interrupt(3)
    assert bench.kernel.answers[3] == errno.EINTR
    bench.files.receive({"lease": 2, "done": [0, 1]}, None)


def test_a_failure_is_an_error_for_all_waiters_and_the_next_open_tries_again(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"file"])
    bench.files.receive({"lease": 1, "error": "gone", "code": "unknown_manifest"}, None)
    assert bench.kernel.answers[1] == errno.ENOENT
    bench.files.open(2, bench.nodes[b"file"])
    bench.lend(2, CONTENT, done=[0])
    handle, _ = bench.kernel.opened(2)
    bench.files.read(3, handle, CHUNK_BYTES, 5)
    bench.files.receive({"lease": 2, "error": "stalled", "code": "origin_unavailable"}, None)
    bench.files.read(4, handle, CHUNK_BYTES, 5)
    bench.files.read(5, handle, 0, 5)
    assert bench.kernel.answers[3] == bench.kernel.answers[4] == errno.EIO
    assert bench.kernel.answers[5] == CONTENT[:5]
    bench.files.open(6, bench.nodes[b"file"])
    assert bench.sent[-1]["open"] == 3
    bench.files.release(handle)
    assert bench.sent[-1] == {"close": 2}


def test_a_blob_of_another_size_is_not_shown(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"file"])
    bench.lend(1, CONTENT[:-1])
    assert bench.kernel.answers[1] == errno.EIO


def test_a_whole_files_loan_outlasts_its_reader_for_a_while(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"file"])
    bench.lend(1, CONTENT)
    handle, _ = bench.kernel.opened(1)
    bench.files.release(handle)
    bench.files.age()
    handle, passed = bench.open(2, b"file")  # answered without the agent
    assert passed and len(bench.sent) == 1
    bench.files.age()  # it is in use
    bench.files.release(handle)
    bench.files.age()
    assert len(bench.sent) == 1
    bench.files.age()
    assert bench.sent[1:] == [{"close": 1}] and not bench.kernel.backings
    bench.files.open(3, bench.nodes[b"file"])
    assert bench.sent[-1]["open"] == 2


def test_files_that_share_a_blob_share_its_loan_also_later(bench: Bench) -> None:
    bench.files.open(1, bench.nodes[b"one"])
    bench.lend(1, CONTENT[:20])
    handle, passed = bench.kernel.opened(1)
    assert not passed
    bench.files.read(2, handle, 0, 100)
    assert bench.kernel.answers[2] == CONTENT[:5]
    bench.files.release(handle)
    handle, _ = bench.open(3, b"two")
    bench.files.read(4, handle, 10, 100)
    assert bench.kernel.answers[4] == CONTENT[15:20]
    bench.files.read(5, handle, 15, 100)
    assert bench.kernel.answers[5] == b""
    assert len(bench.sent) == 1
