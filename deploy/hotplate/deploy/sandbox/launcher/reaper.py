"""The first process of a family: of a program, and of what it has forked into namespaces below.

It lives longer than the program, as long as there is anything of what was forked.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from hotplate.deploy.sandbox.launcher.first import close_all_but
from hotplate.deploy.sandbox.launcher.instructions import Instructions
from hotplate.deploy.sandbox.launcher.kernel import Kernel
from hotplate.deploy.sandbox.launcher.privileges import confine

_SWEEP_PAUSE_S = 0.005
"""Until we look again whether what we have killed has gone, or has forked before."""
_LAST_NUMBER = 1000
"""After this, processes of a family are numbered: what it forks has small numbers in namespaces of
its own, and it is by a changed number that libraries notice that they have been forked."""


def number_apart() -> None:
    """Have the processes of our namespace numbered so that what they fork is not numbered alike."""
    with (
        contextlib.suppress(OSError),  # not every kernel can: then a few may be alike
        open("/proc/sys/kernel/ns_last_pid", "w") as file,
    ):
        file.write(str(_LAST_NUMBER))


def reap(kernel: Kernel, plan: Instructions, users: int, channel: int) -> None:
    """Bury what a family leaves, telling its number here and what it has ended with, a line each.

    When the channel closes, all of the family but what it has forked is killed; we end when there
    is nothing left.
    """
    confine(kernel, plan, users, [], guards=True)
    close_all_but(channel)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(channel, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    watched = [woken, channel]
    while True:
        readable = select.select(watched, [], [])[0]
        if woken in readable:
            os.read(woken, 1 << 12)
        if channel in readable:
            watched.remove(channel)
            _end_own()
        if not _bury(channel) and channel not in watched:
            return


def _bury(channel: int) -> bool:
    """Whether we have children still."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        with contextlib.suppress(OSError):  # nobody wants to know
            os.write(channel, f"{pid} {os.waitstatus_to_exitcode(status)}\n".encode())


def _end_own() -> None:
    """Those that are in our namespace, and in none below."""
    while own := [name for name in os.listdir("/proc") if name.isdigit() and _is_own(name)]:
        killed = 0
        for name in own:
            with contextlib.suppress(OSError):  # it has ended, or may do more than we
                os.kill(int(name), signal.SIGKILL)
                killed += 1
        if not killed:
            return
        select.select([], [], [], _SWEEP_PAUSE_S)


def _is_own(pid: str) -> bool:
    """Whether it runs, in our namespace and in none below, and is another than we."""
    try:
        with open(f"/proc/{pid}/status") as file:
            about = dict(line.split(":", 1) for line in file)
    except OSError:
        return False
    below = len(about["NSpid"].split()) > 1
    return pid != "1" and not below and about["State"].split()[0] not in "ZX"
