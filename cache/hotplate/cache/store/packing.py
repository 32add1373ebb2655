"""A folder of many small files as a manifest: links and modes kept, small files packed together.

A tree of 20,000 files would take 20,000 requests to an origin. So files that are read together lie
in one blob of one chunk: those of one package, with compiled files apart from their sources, which
a program that imports them never reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry, chunk_digest
from hotplate.cache.store.blobs import BlobStore

SMALL_BYTES = 1 << 20
"""A larger file is a blob of its own, which other trees with the same file share."""
_PACK_BYTES = 1 << 20
"""A pack of this size ends with its package, so that a change of the next package leaves it
alone."""
_PACKAGE_DEPTH = 4
"""lib/python3.11/site-packages/NAME."""

Pieces = Callable[[], Iterable[bytes | bytearray]]
"""Reads a content from its beginning; every piece but the last has `CHUNK_BYTES`."""


class TreeReader(Protocol):
    """A folder that is packed."""

    @property
    def entries(self) -> Mapping[str, ManifestEntry]:
        """Folders, links, and files without their content, by path."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file, by path."""

    def pieces(self, path: str) -> Iterable[bytes | bytearray]:
        """A file's content; every piece but the last has `CHUNK_BYTES`."""


class BlobKeeper(Protocol):
    """Keeps what is packed."""

    def keep(self, size_bytes: int, pieces: Pieces) -> Blob:
        """The content, as the blob that it is."""


def pack_tree(root: Path, store: BlobStore, beat: Callable[[], None] = lambda: None) -> Manifest:
    """Puts all files below `root` into the store; blobs that it has are not written again. `beat`
    is called again and again meanwhile.

    Raises OSError for what cannot be read, and what the store raises.
    """
    manifest = packed(_LocalTree(root), _Stored(store), beat)
    store.put_manifest(manifest)
    return manifest


def packed(tree: TreeReader, keeper: BlobKeeper, beat: Callable[[], None]) -> Manifest:
    """The manifest of a tree, whose files are kept by then. `beat` is called again and again
    meanwhile; raises what it, the tree and the keeper raise."""
    entries = dict(tree.entries)
    packs = _Packs(keeper)
    for path in sorted(tree.sizes, key=_order):
        beat()
        entry, size_bytes = entries[path], tree.sizes[path]
        if size_bytes == 0:
            entries[path] = _with(entry, Blob(0, ()))
        elif size_bytes > SMALL_BYTES or PurePosixPath(path).suffix == ".safetensors":
            entries[path] = _with(entry, keeper.keep(size_bytes, _reading(tree, path, beat)))
        else:
            packs.add(entry, b"".join(tree.pieces(path)))
    entries.update(packs.finish())
    if any(entry.blob == Blob(0, ()) for entry in entries.values()):
        keeper.keep(0, tuple)
    return Manifest(tuple(entries[path] for path in sorted(entries)))


def _reading(tree: TreeReader, path: str, beat: Callable[[], None]) -> Pieces:
    def pieces() -> Iterator[bytes | bytearray]:
        for piece in tree.pieces(path):
            beat()
            yield piece

    return pieces


class _LocalTree:
    """A folder in which nobody else writes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.entries = {path: _entry(root, path) for path in _walk(root)}
        self.sizes = dict(self._sizes())

    def pieces(self, path: str) -> Iterator[bytes]:
        with (self._root / path).open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for path in self.entries:
            there = (self._root / path).lstat()
            if stat.S_ISREG(there.st_mode):
                yield path, there.st_size


class _Stored:
    """In a blob store; read twice rather than uploaded twice."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def keep(self, size_bytes: int, pieces: Pieces) -> Blob:
        blob = Blob(size_bytes, tuple(map(chunk_digest, pieces())))
        if self._store.has(blob):
            return blob
        with self._store.writer() as writer:
            for piece in pieces():
                writer.write(piece)
            return writer.commit()


class _Packs:
    """Small files on their way into packs, one after another."""

    def __init__(self, keeper: BlobKeeper) -> None:
        self._keeper = keeper
        self._group = ("", "")
        self._waiting: list[tuple[ManifestEntry, int, int]] = []
        self._content = bytearray()
        self._done: dict[str, ManifestEntry] = {}

    def add(self, entry: ManifestEntry, content: bytes) -> None:
        group = _group(entry.path)
        full = len(self._content) + len(content) > CHUNK_BYTES
        if full or group[0] != self._group[0] or self._ends_package(group):
            self._end()
        self._group = group
        self._waiting.append((entry, len(self._content), len(content)))
        self._content += content

    def finish(self) -> dict[str, ManifestEntry]:
        """The entries of all files, by path."""
        self._end()
        return self._done

    def _ends_package(self, group: tuple[str, str]) -> bool:
        return group != self._group and len(self._content) >= _PACK_BYTES

    def _end(self) -> None:
        if not self._waiting:
            return
        blob = self._keeper.keep(len(self._content), lambda: [self._content])
        for entry, offset, length in self._waiting:
            self._done[entry.path] = _with(entry, blob, (offset, length))
        self._waiting, self._content = [], bytearray()


def _walk(root: Path, below: str = "") -> Iterator[str]:
    """Relative paths of folders, files and links; a tree contains nothing else."""
    with os.scandir(root / below) as found:
        for one in found:
            path = f"{below}/{one.name}" if below else one.name
            if one.is_symlink() or one.is_file(follow_symlinks=False):
                yield path
            elif one.is_dir(follow_symlinks=False):
                yield path
                yield from _walk(root, path)


def _entry(root: Path, path: str) -> ManifestEntry:
    there = (root / path).lstat()
    link = os.readlink(root / path) if stat.S_ISLNK(there.st_mode) else None
    return ManifestEntry(path, stat.S_IMODE(there.st_mode), there.st_mtime, link=link)


def _with(entry: ManifestEntry, blob: Blob, part: tuple[int, int] | None = None) -> ManifestEntry:
    return ManifestEntry(entry.path, entry.mode, entry.mtime, blob, part=part)


def _group(path: str) -> tuple[str, str]:
    """Whether it is compiled, and its package: one pack holds files of one such group."""
    kind = "compiled" if path.endswith(".pyc") else "plain"
    return kind, "/".join(path.split("/")[:_PACKAGE_DEPTH])


def _order(path: str) -> tuple[str, str, str]:
    return (*_group(path), path)
