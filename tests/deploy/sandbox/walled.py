"""Runs code within walls, as root or as an ordinary user: as a program of its own, since only that
can be another user.

Each place has a folder `data` that is hidden but for the program's own below it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.sandbox.visible_files import VisibleFiles

ORDINARY_USER = 54_322
MISSING, READ_ONLY = "No such file or directory", "Read-only file system"
FORBIDDEN, REFUSED = "Permission denied", "Operation not permitted"
CHECKOUT = Path(__file__).parents[3]
AS_USER = CHECKOUT / "tests/support/as_user.py"
PYTHON = (sys.executable, "-I", "-S", "-c")
INTERPRETER = tuple({sys.base_prefix, os.path.realpath(sys.base_prefix), sys.prefix})
HELPERS = """
import ctypes, json, os, sys

def outcome(work):
    try:
        return work()
    except OSError as error:
        return error.strerror

def read(path):
    with open(path) as file:
        return file.read()

def write(path, text="mine"):
    with open(path, "w") as file:
        return file.write(text)

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def tell(**seen):
    print(json.dumps(seen))
"""


@dataclass
class Place:
    """A folder `data` to hide, with one of a program's own, and as whom to look at it."""

    root: Path
    user: int
    without: tuple[str, ...] = ()
    """Walls that are taken away."""
    adopted: bool = False
    """Whether somebody else than who has started it waits for its end."""
    env: Mapping[str, str] = field(default_factory=dict)
    """More variables of the program."""
    limit_bytes: int = 0
    """Of its memory, which is watched; it is ended when it uses more."""
    mark: str = ""
    """By which its processes are found, if that is not its own folder."""

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def own(self) -> Path:
        return self.data / "program/work"

    def look(self, code: str, *arguments: object, **shown: Any) -> Any:
        """What `code` tells, which may use the functions above."""
        view = VisibleFiles(
            reads=(*INTERPRETER, *shown.get("reads", ())),
            writes=shown.get("writes", ()),
            layers=shown.get("layers", ()),
            own=str(self.own),
        )
        job = {
            "data": str(self.data),
            "argv": [*PYTHON, HELPERS + code, *map(str, arguments)],
            "view": asdict(view),
            "shared": shown.get("shared", ()),
            "without": self.without,
            "env": self.env,
            "adopted": self.adopted,
            "limit_bytes": self.limit_bytes,
            "mark": self.mark or str(self.own),
        }
        said = subprocess.run(
            [*_launcher(self.user), sys.executable, "-m", "tests.deploy.sandbox.within_walls"],
            input=json.dumps(job),
            cwd=CHECKOUT,
            env={**os.environ, "HOME": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode == 77:
            pytest.skip(said.stderr.strip())
        assert said.returncode == 0, said.stderr
        try:
            return json.loads(said.stdout)
        except ValueError:
            raise AssertionError(said.stdout) from None

    def give(self) -> None:
        """All of it to its user."""
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, self.user, self.user, follow_symlinks=False)


def open_to(here: Place, *walls: str) -> Place:
    """The same place without these walls."""
    return replace(here, without=walls)


@contextmanager
def place(user: int) -> Iterator[Place]:
    if user != os.getuid() != 0:
        pytest.skip("only root can be another user")
    # Not in /tmp, which is replaced: only root has another place.
    beside = "/var/lib" if os.getuid() == 0 else None
    made = Place(Path(tempfile.mkdtemp(prefix="walls-", dir=beside)).resolve(), user)
    try:
        made.own.mkdir(parents=True)
        made.data.chmod(0o700)
        made.give()
        yield made
    finally:
        shutil.rmtree(made.root)


def _launcher(user: int) -> list[str]:
    if user == os.geteuid():
        return []
    folders = sorted({sys.prefix, sys.base_prefix, str(CHECKOUT)})
    return [sys.executable, str(AS_USER), str(user), *folders, "--"]
