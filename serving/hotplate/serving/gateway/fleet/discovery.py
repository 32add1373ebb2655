"""Where gateways meet that serve the same routes: a folder of their user's, found by its keys.

A gateway has keys (the file of its routes, each deployment with its address; the token of its
control plane), which lead to its fleet's folder. A gateway that starts uses the folder of a living
gateway with a common key; otherwise it makes one of its own. Gateways start one after the other, so
that two never miss each other.

The folder is in the user's home, which replicas do not see, because anybody who can write there
could take over deployments, or keep gateways from starting.
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

from hotplate.serving.gateway.fleet.members import file_name
from hotplate.serving.gateway.fleet.membership import MEMBER, is_held

SETTING = "HOTPLATE_GATEWAY__MEETING"
"""The environment variable that names another folder, where the home cannot be used."""
USUAL = "~/.local/state/hotplate/gateways"
"""Not `XDG_RUNTIME_DIR`, which is removed when the user logs out while gateways go on."""
RENDEZVOUS = "meeting"
"""The folder's name below a gateway's state folder."""
KEY_SUFFIX = ".meets"
"""Gateways of other versions look for the same name."""
SECRET = "secret"
"""The file of the secret that gateways without a control plane share."""
STARTING = "starting"
"""The lock of a gateway that starts."""
START_S = 5.0
"""How long another gateway may take for its start; a hundred times what it takes."""
STALE_S = 86400
"""The slots of a killed gateway are of no interest after a day."""

log = logging.getLogger(__name__)


def top(otherwise: Path | None = None) -> Path:
    """The folder of all fleets of this user; made if it is not there. `otherwise` serves a user
    without a home. Raises OSError where it cannot be made, or others could change it."""
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
def rendezvous(
    keys: Sequence[str], otherwise: Path | None = None, start_s: float = START_S
) -> Iterator[Path]:
    """The folder for a gateway with these keys; the gateway joins before the block ends. Raises
    OSError as `top` does."""
    above = top(otherwise)
    starting = _lock_start(above, start_s)
    try:
        os.utime(starting)
        _sweep(above)
        led = (_folder_of(above, key) for key in keys)
        folder = next((there for there in led if there is not None), above / file_name(keys[0]))
        folder.mkdir(mode=0o700, exist_ok=True)
        register_keys(folder, keys)
        yield folder
    finally:
        os.close(starting)


def shared_secret(folder: Path) -> str:
    """The secret of all of this user's gateways that have no token of a control plane. Call it in a
    `rendezvous`, with its `folder`."""
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


def register_keys(folder: Path, keys: Iterable[str]) -> None:
    """Has these keys lead to the folder. A gateway that starts meanwhile reads each file whole."""
    for key in keys:
        descriptor, new = tempfile.mkstemp(dir=folder.parent)
        with open(descriptor, "w") as file:
            file.write(folder.name)
        os.replace(new, folder.parent / (file_name(key) + KEY_SUFFIX))


def _lock_start(above: Path, start_s: float) -> int:
    """Takes the lock of starting gateways. A process that does not release it does not keep others
    from starting: it is less harm if two that start at once miss each other."""
    path = above / STARTING
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    # The thread may go on waiting: a lock that it gets later ends with the descriptor.
    waiting = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True)
    waiting.start()
    waiting.join(start_s)
    if waiting.is_alive():
        log.warning(
            "%s has been held for %g s by %s, which should only start: this gateway goes on "
            "without it; end that process",
            path,
            start_s,
            _lock_holder(descriptor),
        )
    return descriptor


def _lock_holder(descriptor: int) -> str:
    """The process that holds the lock, if the kernel says."""
    found = os.fstat(descriptor)
    named = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError):
        held = re.search(rf"FLOCK .* (\d+) {named} ", Path("/proc/locks").read_text())
        if held is not None:
            return f"process {held[1]}"
    return "another process"


def _folder_of(above: Path, key: str) -> Path | None:
    try:
        return above / (above / (file_name(key) + KEY_SUFFIX)).read_text()
    except FileNotFoundError:
        return None


def _sweep(above: Path) -> None:
    """Removes keys of fleets without a gateway, and the old folders of such fleets."""
    for sign in above.glob("*" + KEY_SUFFIX):
        if not _lives(above / sign.read_text()):
            sign.unlink()
    now_ns = (above / STARTING).stat().st_mtime_ns
    for folder in above.glob("*/"):
        with suppress(FileNotFoundError):  # the last one that was there has just remaining
            old = now_ns - folder.stat().st_mtime_ns > STALE_S * 1_000_000_000
            if old and not _lives(folder):
                rmtree(folder, ignore_errors=True)


def _lives(folder: Path) -> bool:
    return any(is_held(member) for member in folder.glob("*" + MEMBER))
