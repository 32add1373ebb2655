"""Backups and restores: a file is whole or not there, and an installation is filled or empty."""

from __future__ import annotations

from pathlib import Path

from hotplate.platform.backups import archive, manifest, passphrase, restoring, rows, saving
from hotplate.platform.backups.restoring import restore
from hotplate.platform.backups.saving import Installation, save
from tests.support.control_plane.filled_installation import (
    files_of,
    filled,
    in_folder,
    installation,
    rows_of,
)
from tests.support.control_plane.killed_lines import KilledWork

SECRET = b"correct horse"
FILES = {"weights": bytes(range(256)), "config": b"{}"}
SOURCES = frozenset(
    filter(
        None,
        (each.__file__ for each in (archive, manifest, passphrase, restoring, rows, saving)),
    )
)


def opened(folder: Path, name: str) -> Installation:
    return in_folder(folder / name)


def made(folder: Path) -> None:
    """One that is filled and has a backup already, and one that is empty."""
    save(folder / "file", filled(installation(folder / "full"), FILES), SECRET)
    installation(folder / "empty")


def saved(folder: Path) -> None:
    save(folder / "file", opened(folder, "full"), SECRET)


def restored(folder: Path) -> None:
    restore(folder / "file", opened(folder, "empty"), SECRET)


def check_saved(folder: Path) -> None:
    """The file is the one before or the new one, which say the same; the next one comes to its
    end, and nothing is left of the one that was killed."""
    _check_file(folder, "first")
    saved(folder)
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["file"]
    _check_file(folder, "second")


def _check_file(folder: Path, name: str) -> None:
    there = installation(folder / name)
    restore(folder / "file", there)  # to open the keys takes long
    _check_same(there, opened(folder, "full"))


def check_restored(folder: Path) -> None:
    """It is as the file says, or has no row; then the next try makes it so."""
    there = opened(folder, "empty")
    if not any(rows_of(there).values()):
        restored(folder)
    full = opened(folder, "full")
    _check_same(there, full)
    assert there.keys.kept() == full.keys.kept()


def _check_same(there: Installation, full: Installation) -> None:
    there.blobs.drop_unfinished()  # as a control plane does at its start
    assert rows_of(there) == rows_of(full)
    # A hold of a backup that was killed ends by itself.
    kept = {name: files for name, files in files_of(full).items() if not name.startswith("holds/")}
    assert files_of(there) == kept


SAVE = KilledWork("backup", SOURCES, made, saved, check_saved)
RESTORE = KilledWork("restore", SOURCES, made, restored, check_restored)
