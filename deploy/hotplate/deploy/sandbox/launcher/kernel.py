"""Calls of the kernel that the interpreter does not have. All raise OSError.

The numbers of calls are those of all architectures (Linux 5.2 to 5.12).
"""

from __future__ import annotations

import ctypes
import errno
import os

NEWNS, NEWIPC, NEWUSER, NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
"""From linux/sched.h."""
NOSUID, NODEV, NOEXEC = 2, 4, 8
"""From sys/mount.h."""
READ_ONLY, NO_SUID, ID_MAPPED = 0x1, 0x2, 0x100000
"""From linux/mount.h: attributes of a mount."""
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NO_NEW_PRIVS = 38
"""From linux/prctl.h."""

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR, _CLONE3 = 428, 429, 442, 435
_CLONE_PARENT = 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC, _MOVE_EMPTY_PATH = 1, 0o2000000, 0x4
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_MS_PRIVATE = 1 << 18
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_ABSTRACT_NAMES = 1
"""LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET of linux/landlock.h."""
_CAPABILITIES = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3."""
_SIGCHLD, _SIG_DFL, _SIG_IGN = 17, 0, 1
_CAPABILITIES_MAX = 64
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 24, 47, 2, 4


class Kernel:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def unshare(self, flags: int) -> None:
        self._check(self._libc.unshare(flags), "a namespace")

    def set_namespace(self, descriptor: int, kind: int = 0) -> None:
        """Enter that one; `kind` is one of the above, or 0 for any."""
        self._check(self._libc.setns(descriptor, kind), "a namespace")

    def fork_sibling(self) -> int:
        """As `os.fork`, but the new process is a child of our own parent, who can wait for it when
        we have ended. Nothing of the interpreter's is told of it."""
        arguments = (ctypes.c_uint64 * 8)(_CLONE_PARENT)
        pid = self._call("clone3", _CLONE3, arguments, ctypes.c_size_t(ctypes.sizeof(arguments)))
        return pid

    def mount(self, kind: str, folder: str, flags: int, options: str = "") -> None:
        texts = (kind.encode(), os.fsencode(folder), kind.encode())
        number = ctypes.c_ulong(flags)
        self._check(self._libc.mount(*texts, number, options.encode()), folder)

    def clone_tree(self, path: str, folder: int = _AT_FDCWD) -> int:
        """A copy of what is mounted there, and below, that nobody sees; relative to `folder`."""
        name = os.fsencode(path)
        flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
        if not name:
            flags |= _AT_EMPTY_PATH
        return self._call(path, _OPEN_TREE, ctypes.c_int(folder), name, ctypes.c_uint(flags))

    def attach_tree(self, tree: int, path: str) -> None:
        """Have such a copy be seen there."""
        numbers = (ctypes.c_int(tree), b"", ctypes.c_int(_AT_FDCWD), os.fsencode(path))
        self._call(path, _MOVE_MOUNT, *numbers, ctypes.c_uint(_MOVE_EMPTY_PATH))

    def set_attributes(
        self,
        mount: int | str,
        more: int = 0,
        less: int = 0,
        *,
        below: bool = True,
        private: bool = False,
        users: int = 0,
    ) -> None:
        """Of a mount by its copy's descriptor or its path, and of those `below` it.

        `users` is a user namespace, by descriptor, for ID_MAPPED.
        """
        folder, name = (mount, b"") if isinstance(mount, int) else (_AT_FDCWD, os.fsencode(mount))
        flags = (_AT_RECURSIVE if below else 0) | (0 if name else _AT_EMPTY_PATH)
        attributes = (ctypes.c_uint64 * 4)(more, less, _MS_PRIVATE if private else 0, users)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        what = os.fsdecode(name) or "a mount"
        numbers = (ctypes.c_int(folder), name, ctypes.c_uint(flags))
        self._call(what, _MOUNT_SETATTR, *numbers, attributes, size)

    def prctl(self, option: int, value: int, more: int = 0) -> None:
        numbers = [ctypes.c_ulong(each) for each in (value, more, 0, 0)]
        self._check(self._libc.prctl(option, *numbers), f"prctl {option}")

    def permitted(self) -> int:
        """The capabilities that we have, or may have: a set of bits."""
        words = (ctypes.c_uint32 * 6)()
        self._check(self._libc.capget((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), words), "capget")
        return words[1] | words[4] << 32

    def set_capabilities(self, held: int, *, inherited: bool = False) -> None:
        """Have these and no others; `inherited` = by what we become, too."""
        low = (1 << 32) - 1
        sets = (held, held, held if inherited else 0)
        words = [each & low for each in sets] + [each >> 32 for each in sets]
        header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
        self._check(self._libc.capset(header, (ctypes.c_uint32 * 6)(*words)), "capset")
        self.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
        for number in range(held.bit_length() if inherited else 0):
            if held >> number & 1:
                self.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number)

    def bound_capabilities(self, kept: set[int]) -> None:
        """Have nothing that we become get any other."""
        for number in range(_CAPABILITIES_MAX):
            try:
                if number not in kept:
                    self.prctl(_PR_CAPBSET_DROP, number)
            except OSError as error:
                if error.errno == errno.EINVAL:  # the kernel knows no more of them
                    return
                raise

    def leave_children(self) -> None:
        """Children that end leave nothing; what we become does as we."""
        self._libc.signal(_SIGCHLD, ctypes.c_void_p(_SIG_IGN))

    def await_children(self) -> None:
        """The contrary: children that end can be waited for."""
        self._libc.signal(_SIGCHLD, ctypes.c_void_p(_SIG_DFL))

    def pause(self) -> None:
        self._libc.pause()

    def keep_to_own_names(self) -> None:
        """Reach by abstract names, which are the machine's, only sockets of who is bound like us
        (Linux 6.12)."""
        rules = (ctypes.c_uint64 * 3)(0, 0, _ABSTRACT_NAMES)
        size = ctypes.c_size_t(ctypes.sizeof(rules))
        numbers = (size, ctypes.c_uint(0))
        descriptor = self._call("a rule of names", _CREATE_RULESET, rules, *numbers)
        try:
            self._call(
                "a rule of names", _RESTRICT_SELF, ctypes.c_int(descriptor), ctypes.c_uint(0)
            )
        finally:
            os.close(descriptor)

    def filter_calls(self, number: int, mode: int, flags: int, instructions: bytes) -> None:
        """By the call `seccomp` with that number."""
        program = _Filter(len(instructions) // 8, instructions)
        numbers = (ctypes.c_uint(mode), ctypes.c_uint(flags))
        self._call("seccomp", number, *numbers, ctypes.byref(program))

    def _call(self, what: str, number: int, *arguments: object) -> int:
        result: int = self._libc.syscall(ctypes.c_long(number), *arguments)
        self._check(result < 0, what)
        return result

    def _check(self, result: int | bool, what: str) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))
