"""How a fork of a program comes within walls of its own (`nested`), which it does by itself.

What keeps it from the machine and from others holds whether it does this in full or not: it has
been made from outside, and the program cannot do anything in the walls that it has itself. Python
>= 3.9, this folder and the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hotplate.deploy.sandbox.launcher.instructions import Instructions
from hotplate.deploy.sandbox.launcher.kernel import (
    NEWIPC,
    NEWNS,
    NEWPID,
    NEWUSER,
    PR_SET_DUMPABLE,
    Kernel,
)
from hotplate.deploy.sandbox.launcher.privileges import become_root, confine

_KINDS = (NEWUSER, NEWPID, NEWIPC, NEWNS)


def enter(namespaces: Sequence[int]) -> None:
    """Enter these, and become their root: of users, processes, IPC and mounts, as descriptors.

    That of processes holds for the children that come after. Raises OSError.
    """
    kernel = Kernel()
    for kind, descriptor in enumerate(namespaces):
        kernel.set_namespace(descriptor, _KINDS[kind])
        os.close(descriptor)
    become_root()
    kernel.prctl(PR_SET_DUMPABLE, 1)  # as after any start: what has another user cannot look in


def confine_child(plan: int) -> None:
    """Have what every program within walls has; `plan` is a descriptor of its instructions.
    Raises OSError."""
    with open(plan, "rb") as file:
        file.seek(0)
        instructions = Instructions(file.read())
    confine(Kernel(), instructions, -1, [])
