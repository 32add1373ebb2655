"""Layers: parts of an image's file system, kept in the user's cache folder.

A layer is named by what it is made from, and is the same file wherever it is made: it has files in
the order of their names, of the user 0, and of one time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import user_cache

_KEPT = 5
"""Of each name: branches that are worked on in turn find theirs."""
_MTIME_S = 315_532_800
"""1980: archives that a program makes of files in an image cannot say earlier times."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One, which `fill` makes in an empty folder; its file changes when `inputs` do."""

    name: str
    inputs: Sequence[str]
    fill: Callable[[Path], None]

    @property
    def place(self) -> Path:
        """Its file, whether it is there or not."""
        said = json.dumps([self.name, *self.inputs, _own_sources()])
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        return user_cache("layers") / f"{self.name}-{digest}.tar"

    def ensure(self) -> bool:
        """Makes it unless it is there; whether it was made."""
        if self.place.exists():
            os.utime(self.place)
            return False
        self.place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.place.parent, prefix=".") as folder:
            root = Path(folder) / "root"
            root.mkdir()
            self.fill(root)
            unfinished = Path(folder) / "layer"
            write_layer(root, unfinished)
            unfinished.rename(self.place)
        self._leave_out_the_oldest()
        return True

    def _leave_out_the_oldest(self) -> None:
        found = self.place.parent.glob(f"{self.name}-????????????????.tar")
        for old in sorted(found, key=lambda layer: -layer.stat().st_mtime)[_KEPT:]:
            old.unlink(missing_ok=True)


@contextlib.contextmanager
def unpacked(layer: Layer) -> Iterator[Path]:
    """The files of a layer, to be used here."""
    with tempfile.TemporaryDirectory() as folder:
        extracting = ["tar", "--extract", "--no-same-owner", f"--directory={folder}"]
        subprocess.run([*extracting, f"--file={layer.place}"], check=True)
        yield Path(folder)


def write_layer(root: Path, place: Path) -> None:
    """Writes the files below `root` as a layer."""
    with tarfile.open(place, "w", format=tarfile.GNU_FORMAT) as layer:
        for path in _below(root):
            entry = layer.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = _MTIME_S
            if entry.isreg():
                with path.open("rb") as content:
                    layer.addfile(entry, content)
            else:
                layer.addfile(entry)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _own_sources() -> str:
    """A layer is made anew when the code that makes it has changed."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
