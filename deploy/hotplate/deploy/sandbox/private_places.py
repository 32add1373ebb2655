"""Folders of a machine that are somebody's own, or full of doors to its services."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

_RUN = "/run"
_HOMES = ("/home", "/root")
_NEEDED = (
    "current-system",
    "nscd",
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "opengl-driver",
    "opengl-driver-32",
)
"""What GPUs' libraries, and all programs of NixOS, look for in /run."""


def hidden_places() -> list[Path]:
    """Homes, our own too, and where a machine's services have their sockets: real paths."""
    ours = {os.path.expanduser("~")}
    with suppress(KeyError):
        ours.add(pwd.getpwuid(os.geteuid()).pw_dir)
    homes = [home for home in ours if os.path.isdir(home) and os.stat(home).st_uid == os.geteuid()]
    real = {Path(path).resolve() for path in (*_HOMES, *homes, _RUN, "/var/run")}
    return sorted(path for path in real if path.is_dir() and len(path.parts) > 1)


def needed_of_them() -> list[str]:
    """What programs cannot do without: whom names of hosts are asked of, and drivers' sockets."""
    names = Path("/etc/resolv.conf").resolve().parent
    needed = [Path(_RUN, name) for name in _NEEDED]
    needed += [names] if names.is_relative_to(_RUN) and names != Path(_RUN) else []
    return [str(path) for path in needed if path.exists()]
