"""The first process of a namespace of processes: all that is in there ends with it."""

from __future__ import annotations

import os

from hotplate.deploy.sandbox.launcher.instructions import Instructions
from hotplate.deploy.sandbox.launcher.kernel import Kernel
from hotplate.deploy.sandbox.launcher.privileges import confine

_SLEEPS = ("/bin/sleep", "/usr/bin/sleep", "/run/current-system/sw/bin/sleep")
_FOR_EVER_S = "2147483647"
_DESCRIPTORS_MAX = 1 << 20


def look_on(kernel: Kernel, plan: Instructions, users: int, marks: dict[bytes, bytes]) -> None:
    """Live, and leave no child of others unburied, until we are killed.

    `users` as for `confine`; `marks` are the variables by which we are found.
    """
    kernel.leave_children()
    confine(kernel, plan, users, [], guards=True)
    close_all_but(-1)
    for sleep in filter(os.path.exists, _SLEEPS):
        os.execve(sleep, [sleep, _FOR_EVER_S], marks)
    while True:
        kernel.pause()


def close_all_but(kept: int) -> None:
    """Have no descriptor but that one, and nothing behind the standard ones."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in range(3):
        os.dup2(nothing, each)
    os.closerange(3, max(3, kept))
    os.closerange(max(3, kept + 1), _DESCRIPTORS_MAX)
