"""Which calls of the kernel a replica's code may make: all but those that no service needs.

What is refused either changes the machine, or has again and again been a way through the kernel.
Refused calls fail as they do for an ordinary user; what has a fallback everywhere (`clone3`,
`io_uring`) is said not to exist, so that the fallback is taken. Debuggers, profilers within the
process, GPU drivers, NUMA, sandboxes by Landlock or seccomp and a network namespace of one's own
are left alone.

A filter is a program of classic BPF (`man 2 seccomp`), which the kernel runs for calls that it
does not know to be allowed whatever their arguments are. Pure, and of the standard library only.
A process that has no new privileges puts it on itself and on all that it starts by the call
`seccomp(SET_MODE, SPEC_ALLOW, {length, program})`; by `prctl` it would, before Linux 5.16, be
slowed down too.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""From linux/bpf_common.h: codes of instructions, each with a constant."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
"""From linux/seccomp.h."""
_NUMBER, _ABI = 0, 4
"""Where a call's number and its ABI lie in `struct seccomp_data`, in bytes."""
SECCOMP = {"x86_64": 317, "aarch64": 277}
"""The number of the call that installs a filter, by machine."""
SET_MODE, SPEC_ALLOW = 1, 4
"""SECCOMP_SET_MODE_FILTER and SECCOMP_FILTER_FLAG_SPEC_ALLOW of linux/seccomp.h."""
_X32 = 0x40000000
"""Numbers from here on are calls of x86-64's other ABI."""
_JUMP_MAX = 255


@dataclass(frozen=True)
class _Ask:
    """A node of the tree of decisions: compares a word of the call with a constant."""

    code: int
    word: int
    """Its place in `struct seccomp_data`, in bytes."""
    value: int
    yes: _Tree
    no: _Tree


_Tree = int | _Ask
"""An int is the end: 0 allows the call, another is the error it gets, or `_UNDONE`."""
_UNDONE = -1
"""The call is said to be done, and is not."""


def _argument(index: int) -> int:
    """Where the lower half of an argument lies: the kernel reads no more of those we ask for."""
    return 16 + 8 * index


def _only(index: int, values: Iterable[int], error: int = errno.EPERM) -> _Tree:
    """Allow the call where that argument is one of `values`."""
    return _where(index, dict.fromkeys(values, 0), error)


def _where(index: int, trees: Mapping[int, _Tree], otherwise: _Tree) -> _Tree:
    """Go on by the value of that argument."""
    tree = otherwise
    for value, then in trees.items():
        tree = _Ask(_EQUAL, _argument(index), value, then, tree)
    return tree


def _without(index: int, bits: int) -> _Tree:
    """Refuse the call where that argument has any of `bits`."""
    return _Ask(_ANY_BIT, _argument(index), bits, errno.EPERM, 0)


_NEWTIME, _NEWNS, _NEWCGROUP, _NEWUTS = 0x80, 0x20000, 0x2000000, 0x4000000
_NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x8000000, 0x10000000, 0x20000000, 0x40000000
"""From linux/sched.h."""
_NAMESPACES = _NEWNS | _NEWCGROUP | _NEWUTS | _NEWIPC | _NEWPID
"""Those that nobody makes; in a call of `clone`, 0x80 belongs to a signal's number."""

_ENTERED = (_NEWUSER, _NEWNET, _NEWPID, _NEWIPC, _NEWNS)
"""By a program that forks others, which it can where it owns the users only (`launcher.nested`)."""
_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6 (linux/socket.h); AF_NETLINK for some of its protocols."""
_NETLINK, _PROTOCOLS = 16, (0, 4, 15, 20)
"""Of netlink what `getaddrinfo`, `ip`, `ss`, udev's and InfiniBand's libraries ask: NETLINK_ROUTE,
SOCK_DIAG, KOBJECT_UEVENT, RDMA (linux/netlink.h). Not the firewall's."""
_PERSONALITIES = (0, 0xFFFFFFFF)
"""The usual one, and the question which one it is."""
_TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423)
"""TIOCSTI, TIOCLINUX, TIOCSETD (asm-generic/ioctls.h): put words into a terminal's mouth, and load
line disciplines."""
_FIREWALL_OPTIONS = {0: (64, 65, 96, 97, 128, 129), 41: (64, 65)}
"""By the level of a socket's option: those of iptables, arptables and ebtables, which whoever has a
network namespace may set (linux/netfilter*/)."""

_SHARED_PORT = {1: {15: _UNDONE}}
"""SO_REUSEPORT (asm-generic/socket.h). Two programs of one user that have set it may listen at one
port, and each gets half of who calls there: a deployment's, which gateways share so. Servers set it
without need, and would not start where it is refused."""
_SET_USER_ID = 0o4000
"""S_ISUID of a file's mode (linux/stat.h): whoever finds such a file becomes its maker, and walls
are around those only who are within."""
_MAKES_FILE = 0o100 | 0o20000000
"""O_CREAT and __O_TMPFILE (asm-generic/fcntl.h): without them the mode is not read."""


def _opens(flags: int) -> _Tree:
    """Refuse to make a file that has its user's id, where the flags are that argument."""
    return _Ask(_ANY_BIT, _argument(flags), _MAKES_FILE, _without(flags + 1, _SET_USER_ID), 0)


_SOCKET = _where(
    0,
    {
        _NETLINK: _only(2, _PROTOCOLS, errno.EPROTONOSUPPORT),
        **dict.fromkeys(_FAMILIES, 0),
    },
    errno.EAFNOSUPPORT,
)


def _options(trees: Mapping[int, Mapping[int, _Tree]]) -> _Tree:
    """By the level of a socket's option, and its name."""
    return _where(1, {level: _where(2, names, 0) for level, names in trees.items()}, 0)


_FIREWALL = {level: dict.fromkeys(names, errno.EPERM) for level, names in _FIREWALL_OPTIONS.items()}

_RULES: dict[str, _Tree] = {
    "clone": _without(0, _NAMESPACES | _NEWUSER | _NEWNET),
    "clone3": errno.ENOSYS,  # its flags are in memory, where no filter looks
    "unshare": _without(0, _NAMESPACES | _NEWTIME),  # a network, and users to have it
    "setns": _only(1, (_NEWUSER, _NEWNET)),
    "personality": _only(0, _PERSONALITIES),
    "ioctl": _where(1, dict.fromkeys(_TERMINAL_REQUESTS, errno.EPERM), 0),
    "socket": _SOCKET,
    "socketpair": _SOCKET,
    "setsockopt": _options(_FIREWALL),
    "open": _opens(1),
    "openat": _opens(2),
    "openat2": errno.ENOSYS,  # its mode is in memory, too
    "creat": _without(1, _SET_USER_ID),
    "mknod": _without(1, _SET_USER_ID),
    "mknodat": _without(2, _SET_USER_ID),
    "chmod": _without(1, _SET_USER_ID),
    "fchmod": _without(1, _SET_USER_ID),
    "fchmodat": _without(2, _SET_USER_ID),
    "fchmodat2": _without(2, _SET_USER_ID),
    "io_uring_setup": errno.ENOSYS,
    "io_uring_enter": errno.ENOSYS,
    "io_uring_register": errno.ENOSYS,
}
"""All other calls of the tables below get EPERM."""

CALLS: dict[str, tuple[int | None, int | None]] = {
    # by name: the number on x86-64 and on aarch64, if there is one
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "setns": (308, 268),
    "personality": (135, 92),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "setsockopt": (54, 208),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # files, and their modes
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    # what is mounted where
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    # the kernel's own code, and code in the kernel
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "lookup_dcookie": (212, 18),
    "kcmp": (312, 272),
    "syslog": (103, 116),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    # keys, which belong to a user and not to a process
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine's clock, name and power
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "reboot": (169, 142),
    "acct": (163, 89),
    "vhangup": (153, 58),
    "sysfs": (139, None),
    "ustat": (136, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
}
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""By the name the kernel gives it: the ABI, as in linux/audit.h, and the column above."""


def program(machine: str | None = None, *, own_users: bool = False, enters: bool = False) -> bytes:
    """The filter of that machine, as `uname -m` calls it, or of this one: `struct sock_filter[]`.

    With `own_users` who is within is nobody outside, and shares a port with nobody there. What
    `enters` may enter the namespaces that are made for what it forks.
    Calls of any other ABI (those of 32 bits, x32) get ENOSYS. Raises LookupError for a machine
    whose calls are not known here.
    """
    name = machine or platform.machine()
    if name not in _MACHINES:
        raise LookupError(f"The calls of a kernel for {name} are not known.")
    abi, column = _MACHINES[name]
    asked = _RULES if own_users else {**_RULES, "setsockopt": _options(_FIREWALL | _SHARED_PORT)}
    if enters:
        asked = {**asked, "setns": _only(1, _ENTERED)}
    rules = {
        numbers[column]: asked.get(call, errno.EPERM)
        for call, numbers in CALLS.items()
        if numbers[column] is not None
    }
    rules[_X32] = errno.ENOSYS
    by_number = _by_number(_pieces(rules))
    return b"".join(_assembled(_Ask(_EQUAL, _ABI, abi, by_number, errno.ENOSYS), None))


def _pieces(rules: Mapping[int | None, _Tree]) -> list[tuple[int, _Tree]]:
    """From which number on which rule holds, up to the next one's. From x32's on it is the last."""
    starts: dict[int, _Tree] = {0: 0}
    for number in sorted(each for each in rules if each is not None):
        starts[number] = rules[number]
        if number != _X32 and number + 1 not in rules:
            starts[number + 1] = 0
    pieces = list(starts.items())
    return [
        each for last, each in zip([(0, None), *pieces], pieces, strict=False) if last[1] != each[1]
    ]


def _by_number(pieces: list[tuple[int, _Tree]]) -> _Tree:
    """A balanced tree, so that a call costs a logarithm of what is refused."""
    if len(pieces) == 1:
        return pieces[0][1]
    middle = len(pieces) // 2
    below, above = _by_number(pieces[:middle]), _by_number(pieces[middle:])
    return _Ask(_AT_LEAST, _NUMBER, pieces[middle][0], above, below)


def _assembled(tree: _Tree, loaded: int | None) -> list[bytes]:
    """The instructions of a tree, where that word of the call has been loaded."""
    if isinstance(tree, int):
        return [_instruction(_RETURN, _ERRNO | max(tree, 0) if tree else _ALLOW)]
    no, yes = _assembled(tree.no, tree.word), _assembled(tree.yes, tree.word)
    if len(no) > _JUMP_MAX:
        raise AssertionError(f"a jump over {len(no)} instructions")
    load = [_instruction(_LOAD, tree.word)] if loaded != tree.word else []
    return [*load, _instruction(tree.code, tree.value, yes=len(no)), *no, *yes]


def _instruction(code: int, value: int, yes: int = 0) -> bytes:
    """`yes` is how many instructions are left out where the comparison holds."""
    return struct.pack("=HBBI", code, yes, 0, value)
