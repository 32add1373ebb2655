"""Files of this machine: `file://…`, or a path."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec

from hotplate.cache.errors import OriginUnavailable, UnknownUrl
from hotplate.cache.origins.blob_source import ByteSource, OnProgress, ignore, read_at
from hotplate.cache.origins.locations import Location, Version, changed


class LocalFiles:
    """Files of this machine; links are followed."""

    def find(self, url: str) -> Location:
        _, root = fsspec.url_to_fs(url)
        try:
            found = {path: os.stat(path) for path in _paths(root)}
        except FileNotFoundError as exc:
            raise UnknownUrl(f"there is nothing at {url}; check the URL") from exc
        except OSError as exc:
            raise OriginUnavailable(f"{url} cannot be listed: {exc.strerror}") from exc
        files = {path: info for path, info in found.items() if stat.S_ISREG(info.st_mode)}
        if not files:
            raise UnknownUrl(f"there is no file below {url}; check the URL")
        return Location(url, tuple(_version(path, files[path]) for path in sorted(files)))

    def source(self, version: Version) -> ByteSource:
        return LocalSource(version)


@dataclass(frozen=True)
class LocalSource:
    """One version of a file of this machine, read straight into place."""

    version: Version

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        path = self.version.url.removeprefix("file://")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                got = read_at(fd, offset, view)
                now = _version(path, os.fstat(fd))
            finally:
                os.close(fd)
        except FileNotFoundError as exc:
            raise UnknownUrl(f"{self.version.url} is no longer there") from exc
        except OSError as exc:
            raise OriginUnavailable(f"{self.version.url} cannot be read: {exc.strerror}") from exc
        if now != self.version or got != len(view):
            raise changed(self.version)


def _paths(root: str) -> Iterator[str]:
    if not os.path.isdir(root):
        yield root
        return
    for folder, _, names in os.walk(root, onerror=_fail):
        yield from (path for name in names if os.path.exists(path := os.path.join(folder, name)))


def _fail(error: OSError) -> None:
    raise error


def _version(path: str, info: os.stat_result) -> Version:
    return Version(f"file://{path}", info.st_size, str(info.st_mtime_ns))
