"""How a process ended, in words."""

from __future__ import annotations

import pytest

from hotplate.deploy.process.exit_messages import ending


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "ended after 2.0 s; how is not known, because its parent had ended before"),
        (0, "exited with code 0 after 2.0 s, although it was not told to end"),
        (3, "exited with code 3 after 2.0 s"),
        (
            -9,
            "killed by signal 9 after 2.0 s "
            "(SIGKILL: by hand, or by the kernel for lack of memory, which dmesg shows)",
        ),
        (-15, "killed by signal 15 after 2.0 s (SIGTERM: it was told to end)"),
        (
            -11,
            "killed by signal 11 after 2.0 s (SIGSEGV: native code in it crashed; "
            "the last lines of its log may say where)",
        ),
        (-10, "killed by signal 10 after 2.0 s (SIGUSR1)"),
        (-40, "killed by signal 40 after 2.0 s (a signal of real time)"),
        (
            137,
            "exited with code 137 after 2.0 s (a child of it: SIGKILL: by hand, or by the kernel "
            "for lack of memory, which dmesg shows)",
        ),
    ],
)
def test_an_end_says_how_and_by_whom_it_probably_was(code: int | None, said: str) -> None:
    assert ending(code, 2.0) == said
