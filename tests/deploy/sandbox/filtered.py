"""Becomes a program under a filter of calls: `filtered.py CALL FILTER PROGRAM ARGUMENT…`, CALL the
number of `seccomp` here, FILTER in hex, or empty for none."""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE, _SPEC_ALLOW = 1, 4
"""From linux/prctl.h and linux/seccomp.h."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(call: int, text: str) -> None:
    """Raises OSError."""
    instructions = bytes.fromhex(text)
    filter_program = _Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    numbers = map(ctypes.c_long, (call, _SET_MODE, _SPEC_ALLOW))
    _check(libc.syscall(*numbers, ctypes.byref(filter_program)))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    if sys.argv[2]:
        install(int(sys.argv[1]), sys.argv[2])
    os.execv(sys.argv[3], sys.argv[3:])
