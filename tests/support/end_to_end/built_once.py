"""What takes long to build, and is the same for several platforms of one test run."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def environments_of(user: int, factory: pytest.TempPathFactory) -> Path:
    """Where the environments of a user's platforms are kept, for all workers of a test run and for
    no other run."""
    own = factory.getbasetemp()
    of_all_workers = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return of_all_workers / f"environments-of-{user}"


@contextmanager
def built_once(folder: Path, kept: Path) -> Iterator[None]:
    """The block fills `folder`, or finds in it what an earlier block, also of another worker, has
    filled in and `kept`.

    Each platform has folders of its own, as one may remove what another uses; the files are shared.
    """
    with kept.with_name(f"{kept.name}.lock").open("w") as lock:
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
        about = organization.stat()
        place.chmod(about.st_mode)
        os.chown(place, about.st_uid, about.st_gid)
        subprocess.run(["cp", "-al", *organization.glob("[!.]*"), place], check=True)
