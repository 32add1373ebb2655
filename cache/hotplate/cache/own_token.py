"""The token of an agent that was given none, where programs of the same user find it.

Not every program on this machine is the operator's: there are other users, and pages in a browser.
So such an agent makes a token at each start. It lies in the agent's folder, and a link in a folder
of the user's leads there, named after the agent's address. The link of a killed agent leads to a
token that is no longer valid.

Used in the environments of bentos too: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from hotplate.machine.address import Address

FILE = "token"
"""In the agent's folder."""
_TOKEN_BYTES = 4096


def make(data: Path) -> str:
    """A new token, kept in the agent's folder in place of the one before. Raises OSError."""
    token = secrets.token_hex(24)
    fresh = data / f".{FILE}"
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(fresh, flags, 0o600), "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    os.replace(fresh, data / FILE)
    return token


@contextlib.contextmanager
def found_at(address: str, data: Path) -> Iterator[None]:
    """Lets this user's programs find that token by the agent's address, `HOST:PORT`.

    Where the user has no folder for that, they need the file's path.
    """
    link = _folder() / _name(address)
    target = str(data / FILE)
    with contextlib.suppress(OSError):
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(target)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if os.readlink(link) == target:
                link.unlink()


def find(address: str) -> str:
    """The token of an agent of this user at `HOST:PORT`; "" where there is none."""
    try:
        link = _folder() / _name(address)
        about = link.parent.stat()
        if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return ""
        with link.open(encoding="ascii") as file:
            return file.read(_TOKEN_BYTES).strip()
    except (OSError, ValueError):
        return ""


def _folder() -> Path:
    above = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(above, "hotplate", "agents")


def _name(address: str) -> str:
    """Raises ValueError for anything but HOST:PORT."""
    host, port = Address.parse(address)
    return str(Address("127.0.0.1" if host == "localhost" else host, port)).replace("/", "_")
