"""Where gateways meet that serve the same: a folder of this user's, found by what they serve.

A gateway is known by keys (the file of its routes, each deployment with its address; the token of
its control plane), which lead to its folder. One that starts goes where a living one went that has
a key in common; else it opens a folder of its own. They start one after the other, so that two
never miss each other.

The folder is in this user's home, which replicas do not see: who can write there could take over
deployments, or keep gateways from starting.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

from hotplate.serving.gateway.fleet.membership import MEMBER, file_name, is_held

SETTING = "HOTPLATE_GATEWAY__MEETING"
"""In the environment: another folder, where the home cannot be used."""
USUAL = "~/.local/state/hotplate/gateways"
"""Not `XDG_RUNTIME_DIR`: that one is gone when the user logs out, and gateways are not."""
MEETING = "meeting"
"""The folder's name below a gateway's own."""
MEETS = ".meets"
SECRET = "secret"
"""What gateways without a control plane have in common."""
STARTING = "starting"
"""Held by a gateway while it starts."""
START_S = 5.0
"""How long another one may take for that; a hundred times what it takes."""
LEFT_S = 86400
"""Slots that a killed gateway had taken are of no interest after a day."""

log = logging.getLogger(__name__)


def top(otherwise: Path | None = None) -> Path:
    """The folder in which all of this user's gateways have theirs; made if it is not there.

    `otherwise` serves a user who has no home. Raises OSError where it cannot be made, or others
    could change it.
    """
    path = Path(os.environ.get(SETTING) or os.path.expanduser(USUAL))
    try:
        _make(path)
    except OSError as error:
        if otherwise is None or SETTING in os.environ:
            raise OSError(
                f"{path}, where gateways meet, cannot be made ({error.strerror}); name another "
                f"folder in {SETTING}"
            ) from error
        path = otherwise
        _make(path)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(
            f"{path}, where gateways meet, is not a folder of this user's; remove it, or name "
            f"another one in {SETTING}"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)


@contextmanager
def meeting(
    keys: Sequence[str], otherwise: Path | None = None, start_s: float = START_S
) -> Iterator[Path]:
    """The folder for a gateway that is known by these keys; it joins before the block ends.

    Raises OSError as `top` does.
    """
    above = top(otherwise)
    starting = _next_to_start(above, start_s)
    try:
        os.utime(starting)
        _sweep(above)
        led = (_led_by(above, key) for key in keys)
        folder = next((there for there in led if there is not None), above / file_name(keys[0]))
        folder.mkdir(mode=0o700, exist_ok=True)
        lead(folder, keys)
        yield folder
    finally:
        os.close(starting)


def shared_secret(folder: Path) -> str:
    """What all gateways of this user know that have no control plane's token, and nobody else.

    To be asked for in a `meeting`, whose `folder` it is.
    """
    path = folder.parent / SECRET
    with suppress(FileNotFoundError):
        if kept := path.read_text():
            return kept
    made = secrets.token_hex(32)
    descriptor, fresh = tempfile.mkstemp(dir=folder.parent)  # only this user may read it
    with open(descriptor, "w") as file:
        file.write(made)
    os.replace(fresh, path)
    return made


def lead(folder: Path, keys: Iterable[str]) -> None:
    """Lets these keys lead there too. One that starts meanwhile reads each sign whole."""
    for key in keys:
        descriptor, new = tempfile.mkstemp(dir=folder.parent)
        with open(descriptor, "w") as file:
            file.write(folder.name)
        os.replace(new, folder.parent / (file_name(key) + MEETS))


def _next_to_start(above: Path, start_s: float) -> int:
    """The lock, held. One that another process does not give back keeps no gateway from starting:
    that two which start at once do not find each other is the smaller harm."""
    path = above / STARTING
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    # A thread may be left to wait: what it gets then ends with the descriptor.
    waiting = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True)
    waiting.start()
    waiting.join(start_s)
    if waiting.is_alive():
        log.warning(
            "%s has been held for %g s by %s, which should only start: this gateway goes on "
            "without it; end that process",
            path,
            start_s,
            _holder(descriptor),
        )
    return descriptor


def _holder(descriptor: int) -> str:
    """Which process holds the lock, as far as the kernel tells."""
    found = os.fstat(descriptor)
    named = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError):
        held = re.search(rf"FLOCK .* (\d+) {named} ", Path("/proc/locks").read_text())
        if held is not None:
            return f"process {held[1]}"
    return "another process"


def _led_by(above: Path, key: str) -> Path | None:
    try:
        return above / (above / (file_name(key) + MEETS)).read_text()
    except FileNotFoundError:
        return None


def _sweep(above: Path) -> None:
    """Removes what leads to where nobody is, and what was left of one that nobody came back to."""
    for sign in above.glob("*" + MEETS):
        if not _lives(above / sign.read_text()):
            sign.unlink()
    now_ns = (above / STARTING).stat().st_mtime_ns
    for folder in above.glob("*/"):
        with suppress(FileNotFoundError):  # the last one that was there has just left
            old = now_ns - folder.stat().st_mtime_ns > LEFT_S * 1_000_000_000
            if old and not _lives(folder):
                rmtree(folder, ignore_errors=True)


def _lives(folder: Path) -> bool:
    return any(is_held(member) for member in folder.glob("*" + MEMBER))
