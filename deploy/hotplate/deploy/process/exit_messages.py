"""How a process ended, in words for who runs the platform; pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence

_WHY = {
    signal.SIGKILL: "by hand, or by the kernel for lack of memory, which dmesg shows",
    signal.SIGTERM: "it was told to end",
    signal.SIGINT: "it was told to end",
    signal.SIGHUP: "it was told to end",
    signal.SIGSEGV: "native code in it crashed; the last lines of its log may say where",
    signal.SIGBUS: "a file that it had mappedwas truncated, or native code in it crashed",
    signal.SIGABRT: "it aborted itself; the last lines of its log may say why",
    signal.SIGILL: "it has code for another kind of CPU",
    signal.SIGFPE: "native code in it crashed; the last lines of its log may say where",
}
LAST_LINE_CHARS = 500
"""So much of a log's last line stands in a reason: enough for an exception's own."""
_SHELL_BASE = 128
"""A shell exits with this and the number of the signal that ended its child."""


def ending(code: int | None, lasted_s: float) -> str:
    """How it ended: an exit code, the negative of a signal's number, None where nobody knows."""
    if code is None:
        return (
            f"ended after {lasted_s:.1f} s; how is not known, because its parent had ended before"
        )
    if code < 0:
        return f"killed by signal {-code} after {lasted_s:.1f} s ({_about(-code)})"
    if code == 0:
        return f"exited with code 0 after {lasted_s:.1f} s, although it was not told to end"
    sentence = f"exited with code {code} after {lasted_s:.1f} s"
    number = code - _SHELL_BASE
    return f"{sentence} (a child of it: {_about(number)})" if number in _WHY else sentence


def with_last_line(reason: str, lines: Sequence[str]) -> str:
    """The reason for an end, and the last of these lines of its log that says anything: nothing
    else says why a program has ended by itself."""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = last if len(last) <= LAST_LINE_CHARS else f"{last[:LAST_LINE_CHARS]} …"
    return f"{reason.removesuffix('.')}; its log ends with: {shown}" if last else reason


def _about(number: int) -> str:
    try:
        known = signal.Signals(number)
    except ValueError:
        return "a signal of real time"
    why = _WHY.get(known)
    return f"{known.name}: {why}" if why else known.name
