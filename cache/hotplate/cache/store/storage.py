"""Objects under one fsspec URL, each written whole or not at all: a folder or a bucket alike."""

from __future__ import annotations

import math
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast
from urllib.parse import urlsplit

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from hotplate.cache.errors import CacheError, NoSpace, OriginUnavailable
from hotplate.machine.free_space import FreeSpace, is_full

UPLOAD_BLOCK_BYTES = 64 << 20
"""One part of an upload to a bucket. S3 takes 10,000 parts, so a file may have 640 GiB."""


_INCOMING = "incoming"
_REPLACED = "replaced"
_PREFIX_DIGITS = 2
"""Of the names of folders that share out very many objects."""


@dataclass(frozen=True)
class StoredObject:
    """One object, as a listing shows it."""

    size_bytes: int
    modified_at: float
    """When it was written last, Unix seconds by the storage's own clock; infinity where that is not
    told, so that it never counts as old."""


def open_storage(url: str, disk_reserve_bytes: int = 0, **fsspec_options: Any) -> Storage:
    """The storage at `url`; the reserve (0 = the default) is that of a folder's disk.

    Raises ValueError for a chained URL (`simplecache::s3://…`).
    """
    if "::" in url:
        raise ValueError(f"{without_secrets(url)}: give a plain URL, without '::'")
    # Another process writes there too, so a remembered listing would be wrong.
    fs, root = url_to_fs(url, **{"use_listings_cache": False, **fsspec_options})
    if isinstance(fs, LocalFileSystem):
        return LocalStorage(without_secrets(url), fs, root, disk_reserve_bytes)
    return Storage(without_secrets(url), fs, root)


def without_secrets(url: str) -> str:
    """The URL without user, password and query, fit for a message."""
    parts = urlsplit(url)
    if not parts.netloc:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Storage:
    """A bucket, through fsspec. Paths are relative to its URL. Safe to use from many threads.

    Every method raises NoSpace when there is no space, and OriginUnavailable when the storage
    fails.
    """

    # Drivers pass on their client library's errors; only a local disk raises just OSError.
    _foreign_errors: type[Exception] = Exception

    def __init__(self, url: str, fs: Any, root: str) -> None:
        self.url = url
        self._fs = fs
        self._root = root.rstrip("/")

    def create(self) -> PartUpload:
        """A new object, which has no name until it is published."""
        return PartUpload(self, f"{_INCOMING}/{uuid.uuid4().hex}")

    def drop_unfinished(self) -> None:
        """Removes what a killed writer left behind; to be called by the only writer, first.

        Removes nothing from a bucket, which several may write to: its life-cycle rules do that.
        """

    def check_room(self, size_bytes: int) -> None:
        """Raises NoSpace unless `size_bytes` more may be written."""

    def size(self, path: str) -> int | None:
        """Bytes of the object; None when there is none."""
        with self.asked():
            try:
                return int(self._fs.info(self._at(path))["size"])
            except FileNotFoundError:
                return None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes | None:
        """The bytes asked for, fewer at the object's end; None when there is no such object."""
        end = None if length is None else offset + length
        with self.asked():
            try:
                return cast(bytes, self._fs.cat_file(self._at(path), start=offset, end=end))
            except FileNotFoundError:
                return None

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each object right below `folder`, by its name there."""
        with self.asked():
            try:
                found = self._fs.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return {}
            files = (info for info in found if info["type"] == "file")
            return {info["name"].rpartition("/")[2]: int(info["size"]) for info in files}

    def objects(self, folder: str) -> dict[str, StoredObject]:
        """The objects right below `folder`, by their names there."""
        with self.asked():
            try:
                found = self._fs.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return {}
            return {
                info["name"].rpartition("/")[2]: StoredObject(int(info["size"]), _modified_at(info))
                for info in found
                if info["type"] == "file"
            }

    def objects_below(self, folder: str) -> dict[str, StoredObject]:
        """The objects in the folders below `folder`, by the last part of their names: of a bucket a
        thousand in one answer."""
        with self.asked():
            try:
                found = self._fs.find(self._at(folder), detail=True)
            except FileNotFoundError:
                return {}
            return {
                name.rpartition("/")[2]: StoredObject(int(info["size"]), _modified_at(info))
                for name, info in found.items()
            }

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right below `folder`."""
        with self.asked():
            try:
                found = self._fs.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return []
            names = (info["name"] for info in found if info["type"] == "directory")
            return [name.rstrip("/").rpartition("/")[2] for name in names]

    def modified_at(self, path: str) -> float:
        """When the object was written last, Unix seconds by the storage's clock; infinity where
        that is not told, or there is none."""
        with self.asked():
            try:
                return _modified_at(self._fs.info(self._at(path)))
            except FileNotFoundError:
                return math.inf

    def remove(self, path: str) -> None:
        """Removes the object; nothing happens when there is none."""
        with self.asked(), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(path))

    def remove_folder(self, folder: str) -> None:
        """Removes all objects right below `folder`."""
        for name in self.sizes(folder):
            self.remove(f"{folder}/{name}")

    def used_bytes(self) -> int:
        """Bytes of everything under the URL; slow, since it asks for every object's size."""
        with self.asked():
            found = self._fs.find(self._root, detail=True)
            return sum(int(info["size"]) for info in found.values())

    def open_new(self, path: str) -> IO[bytes]:
        """Opens `path` for writing."""
        opened = self._fs.open(self._at(path), "wb", block_size=UPLOAD_BLOCK_BYTES)
        return cast(IO[bytes], opened)

    def finish(self, file: IO[bytes]) -> None:
        """Closes `file`; afterwards its bytes outlive a loss of power."""
        file.close()

    def move(self, source: str, target: str) -> None:
        """Gives the object its new name atomically, in place of the object that had it."""
        self._fs.mv(self._at(source), self._at(target))

    def set_aside(self, path: str) -> None:
        """Keeps what is there for a while when it is replaced, so that nobody sees by the room
        whether there was something. A bucket has no room that shows."""

    def drop_replaced(self, before: datetime) -> None:
        """Removes what was set aside before then."""

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Turns a driver's errors into ours, with the URL and without its secrets."""
        try:
            yield
        except CacheError:
            raise
        except self._foreign_errors as exc:
            if is_full(exc):
                raise NoSpace(
                    f"{self.url} is full; free space there or point the store elsewhere"
                ) from exc
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else None
            raise OriginUnavailable(
                f"{self.url} cannot be used ({reason or type(exc).__name__}); "
                "check the URL, its credentials and the network"
            ) from exc

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


class LocalStorage(Storage):
    """A folder of this machine: what has been published survives a loss of power."""

    _foreign_errors = OSError

    def __init__(self, url: str, fs: Any, root: str, reserve_bytes: int) -> None:
        super().__init__(url, fs, root)
        self._room = FreeSpace(Path(root), reserve_bytes)

    def check_room(self, size_bytes: int) -> None:
        if refusal := self._room.refusal(size_bytes):
            raise NoSpace(refusal)

    def open_new(self, path: str) -> IO[bytes]:
        _make_folder(os.path.dirname(self._at(path)))
        return open(self._at(path), "xb")

    def finish(self, file: IO[bytes]) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def move(self, source: str, target: str) -> None:
        folder = os.path.dirname(self._at(target))
        _make_folder(folder)
        os.replace(self._at(source), self._at(target))
        _sync_folder(folder)

    def set_aside(self, path: str) -> None:
        with self.asked():
            folder = os.path.dirname(self._at(path))
            if len(os.path.basename(folder)) == _PREFIX_DIGITS:
                _make_beside(folder)
            _make_folder(self._at(_REPLACED))
        # Where there is nothing, or links cannot be made, it is replaced all the same.
        with suppress(OSError):
            os.link(self._at(path), self._at(f"{_REPLACED}/{uuid.uuid4().hex}"))

    def drop_replaced(self, before: datetime) -> None:
        with self.asked(), suppress(FileNotFoundError), os.scandir(self._at(_REPLACED)) as found:
            for one in found:
                if one.stat().st_ctime < before.timestamp():  # it has had its name since then
                    os.unlink(one)

    def drop_unfinished(self) -> None:
        self.remove_folder(_INCOMING)

    def remove_folder(self, folder: str) -> None:
        with self.asked(), suppress(FileNotFoundError):
            shutil.rmtree(self._at(folder))


def _modified_at(info: Mapping[str, Any]) -> float:
    """As one of the drivers tells it: a number, or a moment."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        match info.get(name):
            case datetime() as moment:
                return moment.timestamp()
            case int() | float() as seconds:
                return float(seconds)
    return math.inf


class PartialObject(ABC):
    """An object that is being written; a `with` block discards it at its end unless it was kept."""

    @abstractmethod
    def discard(self) -> None:
        """Removes it, unless it was kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.discard()


class PartUpload(PartialObject):
    """An object that is being written: `write` … `close`, then `publish`, or it is discarded."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._published = False
        with storage.asked():
            self._file: IO[bytes] | None = storage.open_new(path)

    def write(self, data: bytes | memoryview) -> None:
        if self._file is None:
            raise ValueError("the upload is closed")
        self._storage.check_room(len(data))
        with self._storage.asked():
            self._file.write(data)

    def close(self) -> None:
        """Ends the writing; the object waits, whole, to be published or discarded."""
        if self._file is not None:
            with self._storage.asked():
                self._storage.finish(self._file)
            self._file = None  # thousands may wait for the end of their archive

    def publish(self, path: str) -> None:
        """Gives it its name, atomically and in place of the object that had it."""
        with self._storage.asked():
            self._storage.move(self._path, path)
        self._published = True

    def discard(self) -> None:
        """Removes it unless it was published. Raises nothing, since it mostly follows an error."""
        if self._published:
            return
        if self._file is not None:
            with suppress(CacheError), self._storage.asked():
                self._file.close()
        with suppress(CacheError):
            self._storage.remove(self._path)


def _make_folder(path: str) -> None:
    """Makes the folder and those above it, each synced before something is put into it."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        _make_folder(above)
        with suppress(FileExistsError):
            os.mkdir(path)
        _sync_folder(above)


def _make_beside(path: str) -> None:
    """Makes the folder, if it is not there, with all others of two hex digits: which of them are
    there must not say of a digest whether there is one like it."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    _make_folder(above)
    for number in range(256):
        with suppress(FileExistsError):
            os.mkdir(f"{above}/{number:02x}")
    _sync_folder(above)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
