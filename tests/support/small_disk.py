"""A real file system that is small, so that it can be full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

MIB = 1 << 20


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of that size at `folder` for the time of the block; skips where none can be had."""
    mount = shutil.which("mount")
    options = f"size={size_bytes}"
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, left_bytes: int = 0) -> Path:
    """Take the room that the file system of `folder` has, but for `left_bytes`; by which file."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(64 << 10)):
            pass
    assert os.statvfs(folder).f_bavail == 0
    os.truncate(filler, filler.stat().st_size - left_bytes)
    return filler
