"""What a program may do at most: its users, capabilities, limits and calls."""

from __future__ import annotations

import os
import resource
from _collections_abc import Callable, Sequence

from hotplate.deploy.sandbox.launcher.children import WaitingChild
from hotplate.deploy.sandbox.launcher.instructions import LIMITS, PROCESSES, Instructions
from hotplate.deploy.sandbox.launcher.kernel import (
    NEWUSER,
    PR_SET_DUMPABLE,
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
_USERS = "users of its own"
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

    def make() -> None:
        _be(kernel, first)
        if limited:
            _limit()
        kernel.unshare(NEWUSER)

    return _mapped(make, _lines(first, shared))


def separate_family(kernel: Kernel, first: int, others: Sequence[int]) -> int:
    """As `separate_users`, with more ids, which are what they are outside: those from the first of
    `others` up to the second, for the users of namespaces below. Raises OSError."""

    def make() -> None:
        _be(kernel, first)
        kernel.unshare(NEWUSER)

    return _mapped(make, _family_lines(first, *others))


def separate_sharers(kernel: Kernel, plan: Instructions) -> int:
    """The namespace for what all programs write, a descriptor; -1 = there is none."""
    if not plan.first_shared_id or not plan.shared:
        return -1
    try:
        return separate_users(kernel, plan.first_id, plan.first_shared_id)
    except OSError:
        return -1  # our own ids are too few: then what each has made is its own


def separate_users_within(kernel: Kernel, family: int, first: int) -> int:
    """A namespace below `family`, as a descriptor, in which its ids from `first` on are 0 and on.

    Root of `family` is its owner, and may enter it. It is made by the user `first`, for the sake
    of that one's limits. Raises OSError.
    """
    number, to_number = os.pipe()

    def make() -> None:
        os.setresuid(first, 0, 0)
        _limit()
        kernel.prctl(PR_SET_DUMPABLE, 1)  # else its maps are not its owner's to write
        kernel.unshare(NEWUSER)

    def map_it() -> None:
        kernel.set_namespace(family)
        become_root()
        maker = WaitingChild(make, _USERS)
        _map(maker.pid, f"0 {first} {IDS}")
        os.write(to_number, str(maker.pid).encode())

    mapper = WaitingChild(map_it, _USERS)
    made = os.open(f"/proc/{int(os.read(number, 32))}/ns/user", os.O_RDONLY)
    mapper.end()
    os.close(number)
    os.close(to_number)
    return made


def become_root() -> None:
    """Of the namespace that we are in."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _mapped(make: Callable[[], None], lines: str) -> int:
    """The namespace of users that a child makes so, with these ids."""
    maker = WaitingChild(make, _USERS)
    try:
        _map(maker.pid, lines)
        return os.open(f"/proc/{maker.pid}/ns/user", os.O_RDONLY)
    finally:
        maker.end()


def _map(process: int, lines: str) -> None:
    for name in ("gid_map", "uid_map"):
        with open(f"/proc/{process}/{name}", "w") as file:
            file.write(lines)


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


def _family_lines(first: int, start: int, end: int) -> str:
    extents = [(0, first, IDS), (start, start, first - start)]
    extents.append((first + IDS, first + IDS, end - first - IDS))
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
    kept = (_GUARDS,) if guards else () if plan.family else _KEPT
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
