"""Walls around what a program forks: made from outside, entered by the fork (`joining`).

All of it lies below the program's own namespaces, and its users belong to the program's root: by
this, and by nothing else, has the program the power to have a child enter them. What is mounted is
put together as for any program and then copied to a namespace of the new users', who can change
nothing of it: the kernel locks what has come from above.
"""

from __future__ import annotations

import os
from _collections_abc import Sequence
from _signal import (  # type: ignore[import-not-found]  # the module around it loads enum
    SIGKILL,
    pidfd_send_signal,
)
from _socket import (  # the module around it would take longer to load than all else here
    CMSG_SPACE,
    SCM_RIGHTS,
    SOL_SOCKET,
    socket,
    socketpair,
)
from struct import pack, unpack  # ctypes has loaded it; array would load collections

from hotplate.deploy.sandbox.launcher.children import WaitingChild, in_child
from hotplate.deploy.sandbox.launcher.first import look_on
from hotplate.deploy.sandbox.launcher.instructions import Instructions
from hotplate.deploy.sandbox.launcher.kernel import (
    NEWIPC,
    NEWNS,
    NEWPID,
    NODEV,
    NOEXEC,
    NOSUID,
    Kernel,
)
from hotplate.deploy.sandbox.launcher.mounts import Mounts
from hotplate.deploy.sandbox.launcher.privileges import (
    become_root,
    separate_sharers,
    separate_users_within,
)

_NUMBER_BYTES = 4


class NestedWalls:
    """Those of one fork."""

    def __init__(
        self,
        kernel: Kernel,
        plan: Instructions,
        marks: dict[bytes, bytes],
        within: tuple[int, int],
    ) -> None:
        """`within` are the program's namespaces of users and processes, as descriptors."""
        self._kernel = kernel
        self._plan = plan
        self._marks = marks
        self._family_users, self._family_processes = within
        self._outside = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        """Where all processes are seen, whatever will be mounted there."""

    def put_up(self, to: socket) -> None:
        """Says there by their descriptors which namespaces there are: of users, processes, IPC,
        mounts; and of the first process. Raises OSError."""
        kernel, plan = self._kernel, self._plan
        os.umask(0o022)
        users = separate_users_within(kernel, self._family_users, plan.first_id)
        kernel.unshare(NEWNS)
        kernel.set_attributes("/", private=True)
        Mounts(kernel, plan).make(users, separate_sharers(kernel, plan))
        processes, first = self._separate_processes(users)
        in_child(lambda: self._mount_processes(processes), "/proc")
        copier = WaitingChild(lambda: self._copy_mounts(users), "a namespace of mounts")
        made = [self._opened(f"{copier.pid}/ns/{kind}") for kind in ("ipc", "mnt")]
        copier.end()
        try:
            _send(to, [users, processes, *made, first])
        except OSError:  # nobody waits for them any longer
            pidfd_send_signal(first, SIGKILL)
            raise

    def _separate_processes(self, users: int) -> tuple[int, int]:
        """A namespace of processes below the family's, and its first process, as descriptors."""
        ours, theirs = socketpair()

        def enter() -> None:
            self._kernel.set_namespace(self._family_processes)
            in_child(make, "a namespace of processes")

        def make() -> None:
            self._kernel.set_namespace(users)
            become_root()
            self._kernel.unshare(NEWPID)
            first = os.fork()
            if first == 0:
                try:
                    os.setsid()
                    look_on(self._kernel, self._plan, -1, self._marks)
                finally:
                    os._exit(1)
            made = self._opened("self/ns/pid_for_children")
            _send(theirs, [made, os.pidfd_open(first)])

        in_child(enter, "a namespace of processes")
        _, about, _, _ = ours.recvmsg(1, CMSG_SPACE(2 * _NUMBER_BYTES))
        processes, first = unpack("2i", about[0][2])
        return processes, first

    def _mount_processes(self, processes: int) -> None:
        """Have its /proc show those, which only one of them can."""
        self._kernel.set_namespace(processes)
        in_child(
            lambda: self._kernel.mount("proc", "/proc", NOSUID | NODEV | NOEXEC),
            "/proc",
        )

    def _copy_mounts(self, users: int) -> None:
        self._kernel.set_namespace(users)
        self._kernel.unshare(NEWNS | NEWIPC)

    def _opened(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._outside)


def _send(to: socket, descriptors: Sequence[int]) -> None:
    to.sendmsg([b"w"], [(SOL_SOCKET, SCM_RIGHTS, pack(f"{len(descriptors)}i", *descriptors))])
