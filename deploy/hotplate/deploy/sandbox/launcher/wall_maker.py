"""Puts up walls (`nested`) for each fork of one program, in a child of its own each time: so what
it takes to start an interpreter, and to load this folder, is taken once.

Started with CHANNEL, a descriptor, as the platform's own user and in none of its groups. What comes
there are fields, each ended by a NUL: the mark of a replica, which is a variable, an OOM score and
the folders of control groups; and descriptors: of the instructions, of the report, of the program's
namespaces of users and of processes, of a log, and of the socket for the namespaces that are made.
It ends with whoever has the other side. A child enters the groups before it does anything.
"""

from __future__ import annotations

import os
import sys
from _collections_abc import Sequence
from _socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, socket
from struct import unpack

from hotplate.deploy.sandbox.launcher.instructions import Instructions
from hotplate.deploy.sandbox.launcher.kernel import Kernel
from hotplate.deploy.sandbox.launcher.nested import NestedWalls
from hotplate.deploy.sandbox.launcher.scope import enter_scope

DESCRIPTORS = 6
FIELDS_BYTES = 1 << 16
_NUMBER_BYTES = 4


def main() -> None:
    """Until nobody can ask any more."""
    channel, kernel = socket(fileno=int(sys.argv[1])), Kernel()
    kernel.leave_children()
    while True:
        fields, about, _, _ = channel.recvmsg(
            FIELDS_BYTES, CMSG_SPACE(DESCRIPTORS * _NUMBER_BYTES), MSG_CMSG_CLOEXEC
        )
        if not fields:
            os._exit(0)
        descriptors = unpack(f"{DESCRIPTORS}i", about[0][2])
        if os.fork() == 0:
            channel.close()
            kernel.await_children()
            _put_up(kernel, fields, descriptors)
        for each in descriptors:
            os.close(each)


def _put_up(kernel: Kernel, fields: bytes, descriptors: Sequence[int]) -> None:
    """Says why not, if so, and ends."""
    instructions, report, users, processes, log, to = descriptors
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    mark, score, *groups = map(os.fsdecode, fields.split(b"\0")[:-1])
    name, _, value = os.fsencode(mark).partition(b"=")
    why = ""
    try:
        enter_scope(score, groups)
        with open(instructions, "rb") as file:
            plan = Instructions(file.read())
        walls = NestedWalls(kernel, plan, {name: value}, (users, processes))
        walls.put_up(socket(fileno=to))
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    try:
        os.write(report, b"0 0 0 " + os.fsencode(why))
    finally:  # also where nobody waits for it any longer
        os._exit(0)
