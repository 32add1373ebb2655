"""What takes the workers of one test run long to build, and is the same for all of them."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def built_once(folder: Path, factory: pytest.TempPathFactory) -> Iterator[None]:
    """The block fills `folder`, or finds in it what another worker's block has filled in.

    Each worker has folders of its own, as one may remove what another uses; the files are shared.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:  # the folder below is this run's alone
        yield
        return
    of_all_workers = factory.getbasetemp().parent
    kept = of_all_workers / folder.name
    with (of_all_workers / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            _link(kept, folder)
        yield
        if not kept.exists():
            _link(folder, kept)


def _link(source: Path, target: Path) -> None:
    """What is below each organization's folder but for the hidden, which changes, as hard links."""
    for organization in source.glob("[!.]*"):
        place = target / organization.name
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-al", *organization.glob("[!.]*"), place], check=True)
