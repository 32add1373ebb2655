"""Where gateways meet that serve the same: a folder of this user's, found by what they serve.

A gateway is known by keys (the file of its routes, each deployment with its address; the token of
its control plane), which lead to its folder. One that starts goes where a living one went that has
a key in common; else it opens a folder of its own. They start one after the other, so that two
never miss each other.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

from hotplate.serving.gateway.fleet import MEMBER, file_name, is_held

MEETS = ".meets"
STARTING = "starting"
"""Held by a gateway while it starts."""
LEFT_S = 86400
"""Slots that a killed gateway had taken are of no interest after a day."""
SOCKET_NAME_BYTES = 32
SOCKET_PATH_BYTES = 107
"""Linux allows no more (`sun_path`)."""


@contextmanager
def meeting(keys: Sequence[str]) -> Iterator[Path]:
    """The folder for a gateway that is known by these keys; it joins before the block ends.

    It is in the system's folder for temporary files: a socket's name has 107 bytes at most.
    Raises OSError where another user has made it, or the name is too long.
    """
    top = Path(tempfile.gettempdir()) / f"hotplate-gateways-{os.geteuid()}"
    with suppress(FileExistsError):
        top.mkdir(mode=0o700)
    if top.stat().st_uid != os.geteuid():
        raise PermissionError(f"{top} belongs to another user; remove it, or set TMPDIR")
    starting = os.open(top / STARTING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(starting, fcntl.LOCK_EX)
        os.utime(starting)
        _sweep(top)
        led = (_led_by(top, key) for key in keys)
        folder = next((there for there in led if there is not None), top / file_name(keys[0]))
        if len(os.fsencode(folder)) + SOCKET_NAME_BYTES > SOCKET_PATH_BYTES:
            raise OSError(f"{folder} is too long for the name of a socket in it; set TMPDIR")
        folder.mkdir(mode=0o700, exist_ok=True)
        lead(folder, keys)
        yield folder
    finally:
        os.close(starting)


def lead(folder: Path, keys: Iterable[str]) -> None:
    """Lets these keys lead there too. One that starts meanwhile reads each sign whole."""
    for key in keys:
        descriptor, new = tempfile.mkstemp(dir=folder.parent)
        with open(descriptor, "w") as file:
            file.write(folder.name)
        os.replace(new, folder.parent / (file_name(key) + MEETS))


def _led_by(top: Path, key: str) -> Path | None:
    try:
        return top / (top / (file_name(key) + MEETS)).read_text()
    except FileNotFoundError:
        return None


def _sweep(top: Path) -> None:
    """Removes what leads to where nobody is, and what was left of one that nobody came back to."""
    for sign in top.glob("*" + MEETS):
        if not _lives(top / sign.read_text()):
            sign.unlink()
    now_ns = (top / STARTING).stat().st_mtime_ns
    for folder in top.glob("*/"):
        with suppress(FileNotFoundError):  # the last one that was there has just left
            old = now_ns - folder.stat().st_mtime_ns > LEFT_S * 1_000_000_000
            if old and not _lives(folder):
                rmtree(folder, ignore_errors=True)


def _lives(folder: Path) -> bool:
    return any(is_held(member) for member in folder.glob("*" + MEMBER))
