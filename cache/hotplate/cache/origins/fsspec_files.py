"""Files at any fsspec URL, through the reader that its file system brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import fsspec

from hotplate.cache.errors import OriginUnavailable, UnknownUrl
from hotplate.cache.origins.blob_source import ByteSource, OnProgress, ignore
from hotplate.cache.origins.locations import Location, Version, changed
from hotplate.cache.origins.request_size import RequestSize, report

_TAGS = (
    *("ETag", "etag", "generation", "md5Hash", "content_md5"),
    *("mtime", "last_modified", "modify", "modificationTime"),
)
"""The fields in which fsspec's file systems give what changes with the content; the first
counts."""


class FsspecFiles:
    """Files at URLs whose scheme fsspec knows."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paces: dict[tuple[str, str], RequestSize] = {}

    def find(self, url: str) -> Location:
        try:
            fs, root = self.file_system(url)
            fs.invalidate_cache()
            info = fs.info(root)
            found = fs.find(root, detail=True) if info["type"] == "directory" else {root: info}
        except FileNotFoundError as exc:
            raise UnknownUrl(f"there is nothing at {url}; check the URL") from exc
        except (ImportError, ValueError) as exc:
            raise UnknownUrl(f"{url} cannot be read: {exc}") from exc
        except Exception as exc:  # each kind of storage has errors of its own
            raise OriginUnavailable(
                f"{url} cannot be listed ({exc or type(exc).__name__}); "
                "check the URL and the agent's credentials"
            ) from exc
        files = [
            path for path in sorted(found) if not path.endswith("/")
        ]  # a folder's marker is none
        if not files:
            raise UnknownUrl(f"there is no file below {url}; check the URL")
        return Location(url, tuple(_version(fs, found[path]) for path in files))

    def file_system(self, url: str) -> tuple[Any, str]:
        """The URL's file system, and the path in it."""
        fs, path = fsspec.url_to_fs(url)
        return fs, path

    def source(self, version: Version) -> ByteSource:
        parts = urlsplit(version.url)
        origin = (parts.scheme, parts.netloc)
        return FsspecSource(version, self._paces.setdefault(origin, RequestSize(self._clock)))


@dataclass(frozen=True)
class FsspecSource:
    """One version of a file of an fsspec file system."""

    version: Version
    pace: RequestSize

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        report(self._read(offset, view), on_progress)

    def _read(self, offset: int, view: memoryview) -> Iterator[int]:
        """The pieces of one version; after the last piece it is checked that the file is still the
        same."""
        got = 0
        try:
            fs, path = fsspec.url_to_fs(self.version.url)
            for got in self.pace.pieces(fs, path, offset, view):
                yield got
            fs.invalidate_cache()
            now = _version(fs, fs.info(path))
        except FileNotFoundError as exc:
            raise UnknownUrl(f"{self.version.url} is no longer there") from exc
        except Exception as exc:  # each kind of storage has errors of its own
            raise OriginUnavailable(
                f"{self.version.url} cannot be read ({exc or type(exc).__name__}); "
                "check the URL and the agent's credentials"
            ) from exc
        if now != self.version or got != len(view):
            raise changed(self.version)


def _version(fs: Any, info: Mapping[str, Any]) -> Version:
    tag = next((str(info[name]) for name in _TAGS if info.get(name) is not None), "")
    return Version(fs.unstrip_protocol(info["name"]), int(info["size"]), tag)
