"""The ledger: the digests of each version of a file at a URL, kept even when the content goes.

It has one line per fact, appended before the fact is used, so that a killed agent loses at most the
line that it was writing. Lines are synced in the background, since a sync may take seconds on a
busy disk: a power cut may take the facts of the last moments, and takes all that was in memory with
them. A line that is damaged or not whole counts as never written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hotplate.cache.errors import CacheError
from hotplate.cache.manifest import Blob, chunk_digest
from hotplate.cache.origins.locations import Location, Version

log = logging.getLogger(__name__)


class UrlIndex:
    """Digests by version, and versions by URL. Thread-safe; methods that write block."""

    def __init__(self, path: Path, sync: Callable[[int], None] = os.fsync) -> None:
        """Raises OSError when the file cannot be read or written."""
        self._path = path
        self._lock = threading.Lock()
        self._sync = sync
        self._syncing = ThreadPoolExecutor(1, "ledger")
        self._sync_due = False
        self._blobs: dict[str, Blob] = {}
        self._locations: dict[str, Location] = {}
        self._drafts: dict[str, dict[int, str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for fact in _facts(path.read_bytes()):
                self._learn(fact)
        self._rewrite()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def blob(self, version: Version) -> Blob | None:
        """The blob that the version's first complete fetch found; every later one must find the
        same."""
        return self._blobs.get(version.key)

    def content(self, key: str) -> Blob | None:
        """As `blob`, by the version's key."""
        return self._blobs.get(key)

    def location(self, url: str) -> Location | None:
        """The files that were at the URL when it was last listed."""
        return self._locations.get(url)

    def locations(self) -> list[Location]:
        """The files at every URL that was brought here and not forgotten."""
        return list(self._locations.values())

    def digests(self) -> set[str]:
        """The keys of all content that a URL kept here leads to: digests, and keys of drafts."""
        versions = [version for one in self.locations() for version in one.versions]
        blobs = {blob.digest for one in versions if (blob := self.blob(one)) is not None}
        return blobs | {one.key for one in versions if one.key in self._drafts}

    def set_blob(self, version: Version, blob: Blob) -> Blob:
        """Keeps the blob that a complete fetch found, if it is the first; returns the first
        one's."""
        if version.key not in self._blobs:
            self._append(_blob_fact(version.key, blob))
        return self._blobs[version.key]

    def draft(self, version: Version) -> Mapping[int, str]:
        """The digests of a version's chunks that an incomplete fetch has found."""
        return self._drafts.get(version.key, {})

    def note_chunks(self, version: Version, chunks: Mapping[int, str]) -> None:
        """Keeps the digests that a first fetch has found so far, in case it is interrupted."""
        if version.key not in self._blobs:
            self._append(_draft_fact(version.key, chunks), durable=False)

    def set_location(self, location: Location) -> None:
        """Keeps the files that are at a URL now."""
        if self._locations.get(location.url) != location:
            self._append(location_json(location))

    def forget(self, url: str) -> None:
        """The URL's content is no longer kept here; its digests stay, to verify later fetches."""
        if url in self._locations:
            self._append({"forget": url})

    def close(self) -> None:
        """Returns when all facts are synced."""
        self._syncing.shutdown()
        os.close(self._file)

    def _append(self, fact: dict[str, Any], durable: bool = True) -> None:
        """Returns when the fact outlives this process; one sync serves many."""
        line = _line(fact)
        with self._lock:
            try:
                if os.write(self._file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as exc:
                raise CacheError(f"{self._path} cannot be written ({exc.strerror})") from exc
            self._learn(fact)
            if durable and not self._sync_due:
                self._sync_due = True
                self._syncing.submit(self._sync_behind)

    def _sync_behind(self) -> None:
        self._sync_due = False
        try:
            self._sync(self._file)
        except OSError as exc:
            log.error(
                "%s: it cannot be synced (%s), so a power cut may take its last lines",
                self._path,
                exc.strerror,
            )

    def _learn(self, fact: dict[str, Any]) -> None:
        if "draft" in fact:
            self._drafts.setdefault(fact["draft"], {}).update(map(tuple, fact["digests"]))
        elif "chunks" in fact:
            self._drafts.pop(fact["key"], None)
            # Where two fetches ended at once, the one that was written first counts.
            self._blobs.setdefault(fact["key"], Blob(fact["size"], tuple(fact["chunks"])))
        elif "forget" in fact:
            location = self._locations.pop(fact["forget"], None)
            for version in location.versions if location is not None else ():
                self._drafts.pop(version.key, None)
        else:
            location = location_of(fact)
            self._locations[location.url] = location

    def _rewrite(self) -> None:
        """Writes the facts that still hold to a new file."""
        facts = [_blob_fact(key, blob) for key, blob in self._blobs.items()]
        facts += [location_json(one) for one in self._locations.values()]
        facts += [_draft_fact(key, chunks) for key, chunks in self._drafts.items()]
        partial = self._path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.writelines(map(_line, facts))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def location_json(location: Location) -> dict[str, Any]:
    """A location as JSON, for the ledger and for other nodes."""
    files = [[one.url, one.size_bytes, one.tag] for one in location.versions]
    return {"location": location.url, "files": files}


def location_of(data: dict[str, Any]) -> Location:
    """The reverse of `location_json`. Raises KeyError, TypeError or ValueError."""
    versions = (Version(str(url), int(size), str(tag)) for url, size, tag in data["files"])
    return Location(str(data["location"]), tuple(versions))


def _blob_fact(key: str, blob: Blob) -> dict[str, Any]:
    return {"key": key, "size": blob.size_bytes, "chunks": blob.chunks}


def _draft_fact(key: str, chunks: Mapping[int, str]) -> dict[str, Any]:
    return {"draft": key, "digests": list(chunks.items())}


def _line(fact: dict[str, Any]) -> bytes:
    """A fact as a line, which begins with the newline: a torn line before it then harms no
    other."""
    data = json.dumps(fact).encode()
    return b"\n" + chunk_digest(data).encode() + b" " + data


def _facts(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        digest, _, fact = line.partition(b" ")
        if chunk_digest(fact) == digest.decode(errors="replace"):
            yield json.loads(fact)
