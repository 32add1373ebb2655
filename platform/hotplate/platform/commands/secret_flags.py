"""Keeps tokens off the list of arguments, which every user of the machine and some replicas read.

A token that was given as a flag all the same is taken from there: the program begins anew, with
the token in memory of its own and the flag that names a file in place of the one that has a value.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hotplate.platform.errors import BadSetting

FILES = {"--admin-token": "--admin-token-file", "--token": "--token-file"}
"""Flags with a secret, and which flag names a file with it."""


class FoundSecret(NamedTuple):
    """A secret among arguments."""

    flag: str
    secret: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    """The arguments around it."""


def find(argv: Sequence[str]) -> FoundSecret | None:
    """The first flag with a secret that is not empty."""
    for at, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        last = at + 1
        if flag in FILES and not equals and last < len(argv):
            value, last = argv[last], last + 1
        if flag in FILES and value:
            return FoundSecret(flag, value, tuple(argv[:at]), tuple(argv[last:]))
    return None


def read(path: str, flag: str = "--token-file") -> str:
    """The token in a file that a flag names. Raises BadSetting."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise BadSetting(f"{flag} {path} cannot be read: {error.strerror}") from error
    if not re.fullmatch(rb"[!-~]+", token):
        raise BadSetting(
            f"{flag} {path} holds no token: write one word of ASCII letters, digits and signs"
        )
    return token.decode()


def metrics(path: str | None) -> str | None:
    """The token for /metrics; empty = none but the cluster's, None = anybody may read them.
    Raises BadSetting."""
    if path == "no":
        return None
    return read(path, "--metrics-token-file") if path else ""


def hide() -> None:
    """Begin this program anew without the secret in its arguments, if there is one."""
    found = find(sys.orig_argv)
    if found is None:
        return
    instead = FILES[found.flag]
    print(
        f"hotplate: {found.flag} shows the token to every user of this machine who looks at its "
        f"processes; write it to a file and name that with {instead}",
        file=sys.stderr,
        flush=True,
    )
    fd = os.memfd_create("token", 0)
    os.write(fd, os.fsencode(found.secret))
    argv = (*found.before, instead, f"/dev/fd/{fd}", *found.after)
    os.execv(sys.executable, [sys.executable, *argv[1:]])
