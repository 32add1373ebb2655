"""A manifest as a folder that replicas read.

A file that is not streamed is complete before the tree counts as ready. A streamed file is a link
into the file view until it is complete on disk; then the file itself takes its place atomically.
Without a view it is a file that cannot be opened, or it is absent where root could open any file.
So a reader that knows nothing of the agent sees right bytes or an error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Self

from hotplate.cache.manifest import Manifest, ManifestEntry, for_all
from hotplate.cache.tiers.disk import DiskTier, disk_error


class _LentBlobs:
    """Blobs of the disk tier, each opened once: thousands of small files share one."""

    def __init__(self, disk: DiskTier) -> None:
        self._disk = disk
        self._lent: dict[str, int] = {}

    def read(self, digest: str, span: tuple[int, int]) -> bytes:
        """The (offset, length) of a blob. Raises UnknownBlob, CacheError."""
        if digest not in self._lent:
            self._lent[digest] = self._disk.lend(digest)
        offset, size_bytes = span
        return os.pread(self._lent[digest], size_bytes, offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._lent.values():
            os.close(descriptor)


class TreeFolder:
    """The folder `<trees>/<manifest digest>`. Methods do file I/O; all may be repeated."""

    def __init__(
        self,
        trees: Path,
        digest: str,
        manifest: Manifest,
        disk: DiskTier,
        view: Path | None = None,
    ) -> None:
        """`view` is where the file view shows this tree, if there is one."""
        self.root = trees / digest
        self.manifest = manifest
        self.view = view
        self.absent: set[str] = set()
        """Paths of files that are absent from the folder until they are complete."""
        self._building = trees / f".building-{digest}"
        self._spare = trees / f".spare-{digest}"
        self._disk = disk

    def build(
        self, digests: Mapping[str, str], on_disk: Set[str], *, mounted: bool = False
    ) -> set[str]:
        """Makes the folder, or repairs what is there; returns the paths that are complete.

        `digests` are those of the blobs by path, `on_disk` those of verified files of the disk
        tier; every file that is not streamed must be among them. `mounted` = pods see the folder
        that is there, so what is whole in it stays whole, verified in this run or not yet. Killed
        half-way, the folder does not exist under its name. Raises NoSpace.
        """
        fresh = not self.root.exists()
        root = self._building if fresh else self.root
        try:
            if fresh:
                shutil.rmtree(root, ignore_errors=True)
                _make_folder(root)
            linked = self._fill(root, digests, on_disk, mounted=mounted, fresh=fresh)
            if fresh:
                os.rename(root, self.root)
        except OSError as exc:
            raise disk_error(self.root, self.manifest.size_bytes, exc) from exc
        return linked

    def link(self, entry: ManifestEntry, digest: str) -> None:
        """Replaces the file's stand-in with the complete file. Raises NoSpace."""
        try:
            with _LentBlobs(self._disk) as blobs:
                self._place(self.root / entry.path, entry, digest, blobs, fresh=False)
            self.absent.discard(entry.path)
            self._stamp_folders(self.root)
        except OSError as exc:
            raise disk_error(self.root, 0, exc) from exc

    def _fill(
        self,
        root: Path,
        digests: Mapping[str, str],
        on_disk: Set[str],
        *,
        mounted: bool,
        fresh: bool,
    ) -> set[str]:
        linked: set[str] = set()
        made: set[Path] = set()
        with _LentBlobs(self._disk) as blobs:
            for entry in self.manifest.entries:
                path = root / entry.path
                folder = path if entry.is_folder else path.parent
                if folder not in made:
                    _make_folder(folder)
                    made.add(folder)
                if entry.is_folder:
                    continue
                if entry.link is not None:
                    self._place_link(path, entry.link)
                elif digests[entry.path] in on_disk:
                    self._place(path, entry, digests[entry.path], blobs, fresh=fresh)
                    linked.add(entry.path)
                elif mounted and self._disk.is_at(digests[entry.path], path):
                    continue
                elif self.view is not None:
                    self._place_link(path, str(self.view / entry.path))
                elif not self._disk.place_closed(path, entry.mtime):
                    self.absent.add(entry.path)
        self._stamp_folders(root)
        return linked

    def _place(
        self, path: Path, entry: ManifestEntry, digest: str, blobs: _LentBlobs, *, fresh: bool
    ) -> None:
        """Makes a link to the blob; a file that shares its blob with others is a copy of its
        part. `fresh` = nobody sees the folder yet."""
        if entry.part is None:
            self._disk.link(digest, path, entry.mode, entry.mtime)
        elif fresh:
            _write(path, blobs.read(digest, entry.part), entry)
        else:
            self._spare.unlink(missing_ok=True)
            _write(self._spare, blobs.read(digest, entry.part), entry)
            os.replace(self._spare, path)

    def _place_link(self, path: Path, target: str) -> None:
        self._spare.unlink(missing_ok=True)
        os.symlink(target, self._spare)
        os.replace(self._spare, path)

    def _stamp_folders(self, root: Path) -> None:
        """Sets folders' times again, which every change inside them moves."""
        for entry in self.manifest.entries:
            if entry.is_folder:
                os.utime(root / entry.path, (entry.mtime, entry.mtime))


def _write(path: Path, content: bytes, entry: ManifestEntry) -> None:
    """By the descriptor throughout: trees have tens of thousands of small files, and to find the
    path anew for each of their properties takes longer than to write them."""
    with open(path, "xb", buffering=0) as copy:  # never through a link
        while content:
            content = content[copy.write(content) :]
        os.fchmod(copy.fileno(), for_all(entry.mode))
        os.utime(copy.fileno(), (entry.mtime, entry.mtime))


def _make_folder(path: Path) -> None:
    """Makes a folder that every replica may enter that can see it, whatever the process's umask."""
    if not path.is_dir():
        if not path.parent.is_dir():
            _make_folder(path.parent)
        path.mkdir()
        path.chmod(0o755)
