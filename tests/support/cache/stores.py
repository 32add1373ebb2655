"""Places for a blob store: a folder, memory, a bucket of a real S3 server, and broken ones."""

from __future__ import annotations

import atexit
import functools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.core import url_to_fs
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from hotplate.cache.store.blobs import BlobStore

KINDS = ["file", "memory", "s3"]


@contextmanager
def store(kind: str, folder: Path) -> Iterator[BlobStore]:
    """A new, empty store of that kind; S3 is skipped where its packages are missing."""
    if kind == "file":
        yield BlobStore(f"file://{folder}/store")
    elif kind == "memory":
        yield BlobStore(f"memory://{uuid.uuid4().hex}")
    else:
        options, bucket = s3_server(), uuid.uuid4().hex
        fsspec.filesystem("s3", **options).mkdir(bucket)
        yield BlobStore(f"s3://{bucket}/store", **options)


def contents(blobs: BlobStore) -> list[str]:
    """The files in the store, as paths below its URL."""
    options = s3_server() if blobs.url.startswith("s3:") else {}
    fs, root = url_to_fs(blobs.url, use_listings_cache=False, **options)
    return sorted(path.removeprefix(f"{root}/") for path in fs.find(root))


@functools.cache
def s3_server() -> dict[str, Any]:
    """How to reach the S3 server of this test session; skips where its packages are missing."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    atexit.register(server.stop)
    host, port = server.get_host_and_port()
    return {"key": "key", "secret": "secret", "endpoint_url": f"http://{host}:{port}"}


class _FaultyFile(MemoryFile):  # type: ignore[misc]  # fsspec has no types
    def write(self, data: Any) -> int:
        raise self.fs.fault


class OwnFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """What a file system of a test's own is made from."""


class FaultyFileSystem(OwnFileSystem):
    """A remote that raises `fault` on whatever is asked of it."""

    protocol = "faulty"

    def __init__(self, fault: Exception, **options: Any) -> None:
        super().__init__(skip_instance_cache=True, **options)
        self.fault = fault

    def info(self, path: str, **options: Any) -> Any:
        raise self.fault

    def cat_file(self, path: str, **options: Any) -> Any:
        raise self.fault

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return _FaultyFile(self, path)


def faulty_store(fault: Exception) -> BlobStore:
    """A store whose remote raises `fault`; its URL holds credentials."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    return BlobStore("faulty://user:secret@host/store?token=secret", fault=fault)
