"""What a program may do at most: its users, capabilities, limits and calls."""

from __future__ import annotations

import os
import resource

from hotplate.deploy.sandbox.launcher.instructions import LIMITS, PROCESSES, Instructions
from hotplate.deploy.sandbox.launcher.kernel import (
    NEWUSER,
    PR_SET_KEEPCAPS,
    PR_SET_NO_NEW_PRIVS,
    Kernel,
)

IDS = 65_536
"""So many users and groups are there inside."""
_IDS_END = 1 << 31
"""Above all ids that anybody has."""
PROCESSES_MAX = 4096
FILES_MAX = 65_536
_LIMITS = {
    resource.RLIMIT_NPROC: PROCESSES_MAX,
    resource.RLIMIT_NOFILE: FILES_MAX,
    resource.RLIMIT_CORE: 0,
}

_KEPT = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 18, 31)
"""Capabilities, by their numbers in linux/capability.h, of whoever is root inside: chown to setpcap
(all over files and processes of its own), net_bind_service, sys_chroot, setfcap. Ids are mapped in
a namespace of users' own only by who has setuid, setgid and setfcap."""
_SETPCAP = 8
_GUARDS = 35
"""CAP_WAKE_ALARM, which gives nothing here: whoever has it cannot be traced by who does not."""


def separate_users(
    kernel: Kernel, first: int, shared: int | None = None, *, limited: bool = False
) -> int:
    """A namespace, as a descriptor, in which our ids from `first` on are 0 and on. Raises OSError.

    With `shared` all ids are what they are outside, but those from `first` and from `shared` on
    stand for each other.

    It is made by the user `first`: no more processes than that one may have are in it, whoever they
    become there.
    """
    made, ready = os.pipe(), os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            _be(kernel, first)
            if limited:
                _limit()
            kernel.unshare(NEWUSER)
            os.write(made[1], b"1")
            os.close(ready[1])
            os.read(ready[0], 1)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    os.close(made[1])
    os.close(ready[0])
    descriptor = -1
    try:
        if os.read(made[0], 1):
            for name in ("gid_map", "uid_map"):
                with open(f"/proc/{helper}/{name}", "w") as file:
                    file.write(_lines(first, shared))
            descriptor = os.open(f"/proc/{helper}/ns/user", os.O_RDONLY)
    finally:
        os.close(made[0])
        os.close(ready[1])
        _, status = os.waitpid(helper, 0)
    if status:
        number = os.waitstatus_to_exitcode(status)
        raise OSError(number, os.strerror(number), "users of its own")
    return descriptor


def _lines(first: int, shared: int | None) -> str:
    """Of a map of ids: from which on inside, from which on outside, how many."""
    if shared is None:
        return f"0 {first} {IDS}"
    low, high = sorted((first, shared))
    between, after = low + IDS, high + IDS
    extents = [
        (0, 0, low),
        (low, high, IDS),
        (between, between, high - between),
        (high, low, IDS),
        (after, after, _IDS_END - after),
    ]
    return "\n".join(f"{inside} {outside} {count}" for inside, outside, count in extents if count)


def confine(
    kernel: Kernel, plan: Instructions, users: int, groups: list[int], *, guards: bool = False
) -> None:
    """This process, before it becomes the program or, if it `guards`, what no program may trace.

    `users` as `separate_users` gives it, or -1; `groups` are ours, outside. Raises OSError.
    """
    if LIMITS in plan.walls:
        _limit()
    if users >= 0:
        os.setgroups(groups)
        kernel.set_namespace(users)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    kept = (_GUARDS,) if guards else _KEPT
    held = kernel.permitted()
    if held >> _SETPCAP & 1:
        kernel.bound_capabilities(set(kept))
    kernel.set_capabilities(held & sum(1 << each for each in kept), inherited=guards)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if PROCESSES in plan.walls:
        try:  # noqa: SIM105 - contextlib would be a tenth of our own start
            kernel.keep_to_own_names()
        except OSError:
            pass  # an older kernel, or one that was told to do without
    if plan.filter is not None:
        instructions, numbers = plan.filter
        call, mode, flags = map(int, numbers.split())
        kernel.filter_calls(call, mode, flags, bytes.fromhex(instructions))


def _be(kernel: Kernel, user: int) -> None:
    """Become that user and group, with all that we may."""
    permitted = kernel.permitted()
    kernel.prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kernel.set_capabilities(permitted)


def _limit() -> None:
    for kind, most in _LIMITS.items():
        now, hard = resource.getrlimit(kind)
        hard = most if hard == resource.RLIM_INFINITY else min(most, hard)
        soft = hard if now == resource.RLIM_INFINITY else min(now, hard)
        resource.setrlimit(kind, (soft, hard))
