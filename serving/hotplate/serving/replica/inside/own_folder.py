"""The folders of one replica: its private copy of the bento and its `BENTOML_HOME`. Python >= 3.9,
standard library only: in a pod the replica's launcher makes them.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path

LINK_ABOVE_BYTES = 1 << 20
"""Larger files are linked, not copied: they are data, which code reads and does not change."""
LINKED = ("apis", "env")
"""Folders of a bento that say how it was built and what it takes: half of its files, and no code's
to change."""


def copy_bento(tree: Path, to: Path, linked: Collection[str] = LINKED) -> None:
    """Copy a bento's files, writable and with their execute bits; link those over 1 MiB, and the
    folders `linked`."""
    for folder, folders, names in os.walk(tree):
        if Path(folder) == tree:
            to.mkdir(parents=True, exist_ok=True)
            for name in set(linked).intersection(folders):
                (to / name).symlink_to(tree / name, target_is_directory=True)
                folders.remove(name)
        target_folder = to / Path(folder).relative_to(tree)
        target_folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            source, target = Path(folder, name), target_folder / name
            about = source.stat()
            if about.st_size > LINK_ABOVE_BYTES:
                target.symlink_to(source)
            else:
                shutil.copyfile(source, target)
                target.chmod(stat.S_IMODE(about.st_mode) | stat.S_IWUSR)


def add_model(home: Path, name: str, version: str, tree: Path) -> None:
    """Make a model's files a member of the model store of a `BENTOML_HOME`, by a link."""
    folder = home / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / version).symlink_to(tree, target_is_directory=True)
    (folder / "latest").write_text(version, encoding="utf-8")
