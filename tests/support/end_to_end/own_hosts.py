"""Host names that this process and its children know, and nobody else on this machine."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_HOSTS = Path("/etc/hosts")
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS


@dataclass
class OwnHosts:
    """A copy of `/etc/hosts` that lies over it in a mount namespace of our own.

    Threads that were there before see the machine's, and so does what they start.
    """

    copy: Path
    _known: set[str] = field(default_factory=set)

    def enter(self) -> None:
        """Skips the test where this machine does not let us mount."""
        self.copy.write_text(_HOSTS.read_text())
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
            pytest.skip(f"no mount namespace of our own: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", self.copy, _HOSTS], check=True)

    def add(self, name: str, address: str) -> None:
        """From now on the name is that address."""
        if name not in self._known:
            self._known.add(name)
            with self.copy.open("a") as file:
                file.write(f"{address} {name}\n")
