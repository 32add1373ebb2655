"""Files that fsspec alone can read, at a file system in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from hotplate.cache.errors import ChunkCorrupt, OriginUnavailable, VersionChanged
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.origins.blob_source import ByteSource, OnProgress, ignore
from hotplate.cache.origins.fsspec_files import FsspecFiles
from hotplate.cache.origins.request_size import LEAST_BYTES, PIECE_S, RequestSize
from hotplate.cache.origins.schemes import Schemes
from hotplate.cache.store.web_origin import origin_at
from hotplate.cache.swarm.chunks import Chunks
from tests.support.cache.fakes import blob_of, random_bytes
from tests.support.cache.stores import OwnFileSystem

CONTENT = random_bytes(3 * CHUNK_BYTES, 61)


class Remote:
    """A server with one file. A call returns with its last byte, and tells of none before."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.tag_name = "ETag"
        self.tag = "first"
        self.bytes_per_s = 50e6
        self.latency_s = 0.05
        self.now = 0.0
        self.asked: list[int] = []
        """Bytes of each request."""
        self.before_answer: Callable[[], None] = lambda: None

    def read(self, start: int, end: int) -> bytes:
        self.asked.append(end - start)
        self.now += self.latency_s + (end - start) / self.bytes_per_s
        self.before_answer()
        return self.content[start:end]


class RangedFiles(OwnFileSystem):
    """As those of `gs://` and `az://`: a call is a request for a range."""

    protocol = "far"
    async_impl = True
    remote: ClassVar[Remote]

    def info(self, path: str, **_: Any) -> Any:
        remote = self.remote
        size = len(remote.content)
        return {"name": path, "size": size, "type": "file", remote.tag_name: remote.tag}

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return self.remote.read(start, end)


class OpenedFiles(RangedFiles):
    """As those of `ftp://` and `webhdfs://`: a call opens the file, which reads ahead."""

    async_impl = False
    cat_file = AbstractFileSystem.cat_file

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any
    ) -> Any:
        file = AbstractBufferedFile(self, path, mode, block_size)
        file.cache.fetcher = self.remote.read
        return file


@pytest.fixture(params=[RangedFiles, OpenedFiles])
def remote(request: pytest.FixtureRequest) -> Remote:
    request.param.remote = Remote()
    fsspec.register_implementation("far", request.param, clobber=True)
    remote = request.param.remote
    assert isinstance(remote, Remote)
    return remote


def file_at(remote: Remote) -> ByteSource:
    files = Schemes(lambda: remote.now, {}).of("far://bucket/file")
    return files.source(files.find("far://bucket/file").versions[0])


def blob_at(remote: Remote) -> ByteSource:
    origin = origin_at("far://bucket", Schemes(lambda: remote.now, {}))
    return origin.source(blob_of(remote.content))


BOTH = pytest.mark.parametrize("find", [file_at, blob_at])


@BOTH
@pytest.mark.parametrize("speeds", [(6e3, 6e3, 6e3), (1e5, 1e5, 1e4), (6e6, 6e5, 6e4)])
def test_a_fetch_from_a_slow_origin_goes_on_as_long_as_bytes_come(
    remote: Remote, find: Callable[[Remote], ByteSource], speeds: tuple[float, ...]
) -> None:
    source, chunks = find(remote), Chunks("file", 3)

    def look() -> None:
        assert chunks.stalled(remote.now) is None

    remote.before_answer = look
    for index, speed in enumerate(speeds):
        remote.bytes_per_s = speed
        chunks.take(index, remote.now)
        came = partial(tell, chunks, index, remote)
        assert (
            read(source, index * CHUNK_BYTES, came) == CONTENT[index * CHUNK_BYTES :][:CHUNK_BYTES]
        )
        chunks.verified(index, remote.now)


def tell(chunks: Chunks, index: int, remote: Remote, got_bytes: int) -> None:
    chunks.received(index, got_bytes, remote.now)


def read(source: ByteSource, offset: int = 0, on_progress: OnProgress = ignore) -> bytes:
    view = memoryview(bytearray(CHUNK_BYTES))
    source.read_into(offset, view, on_progress)
    return bytes(view)


def test_a_fast_origin_is_asked_for_whole_chunks_once_it_is_known(remote: Remote) -> None:
    files = FsspecFiles(lambda: remote.now)
    (version,) = files.find("far://bucket/file").versions
    read(files.source(version))
    assert len(remote.asked) <= 5
    assert sum(remote.asked) <= CHUNK_BYTES + len(remote.asked) * LEAST_BYTES, (
        "little is read twice"
    )
    del remote.asked[:]
    read(files.source(version), CHUNK_BYTES)
    read(files.source(version), 2 * CHUNK_BYTES)
    assert len(remote.asked) == 2, "another file of that origin is no news"


def test_small_files_and_a_moment_s_burst_say_little_of_an_origin() -> None:
    pace = RequestSize(lambda: 0.0)
    pace.took(LEAST_BYTES, 0.0)
    assert pace.piece_bytes == 4 * LEAST_BYTES
    pace.took(10, PIECE_S)
    assert pace.piece_bytes == 4 * LEAST_BYTES
    pace.took(4 * LEAST_BYTES, 2 * PIECE_S)
    assert pace.piece_bytes == 2 * LEAST_BYTES
    pace.took(LEAST_BYTES, 1000.0)
    assert pace.piece_bytes == LEAST_BYTES


@pytest.mark.parametrize("request_number", [1, 2, 3, 5])
@pytest.mark.parametrize("size_bytes", [len(CONTENT), len(CONTENT) + 1, CHUNK_BYTES // 2])
def test_a_file_that_changes_between_two_pieces_is_an_error(
    remote: Remote, request_number: int, size_bytes: int
) -> None:
    source = file_at(remote)

    def change() -> None:
        if len(remote.asked) == request_number:
            remote.content, remote.tag = bytes(size_bytes), "second"

    remote.before_answer = change
    with pytest.raises(VersionChanged, match="was changed while it was fetched"):
        read(source)


@pytest.mark.parametrize("tag_name", ["etag", "generation", "mtime", "modify", "modificationTime"])
def test_a_change_is_known_by_whatever_the_file_system_says_of_it(
    remote: Remote, tag_name: str
) -> None:
    """`az://`, `gs://`, `sftp://`, `ftp://` and `webhdfs://` each have a word of their own."""
    remote.tag_name = tag_name
    source = file_at(remote)
    remote.content, remote.tag = bytes(len(CONTENT)), "second"
    with pytest.raises(VersionChanged):
        read(source)


def test_a_file_that_has_other_bytes_of_the_same_tag_and_another_size_is_an_error(
    remote: Remote,
) -> None:
    source = file_at(remote)
    remote.content = CONTENT[:-1]
    with pytest.raises(VersionChanged):
        read(source)


@BOTH
@pytest.mark.parametrize("remote", [RangedFiles], indirect=True)
def test_an_origin_that_gives_more_than_it_was_asked_for_is_refused(
    remote: Remote, find: Callable[[Remote], ByteSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = find(remote)
    monkeypatch.setattr(remote, "read", lambda start, end: CONTENT[:CHUNK_BYTES])
    with pytest.raises((VersionChanged, ChunkCorrupt)):
        read(source)


@BOTH
def test_what_came_before_an_error_is_counted(
    remote: Remote, find: Callable[[Remote], ByteSource]
) -> None:
    source = find(remote)

    def fail() -> None:
        if len(remote.asked) == 2:
            raise OSError("connection reset")

    remote.before_answer = fail
    with pytest.raises(OriginUnavailable, match="connection reset") as failed:
        read(source)
    assert failed.value.body_bytes == LEAST_BYTES
