"""Becomes a replica's program, inside its control groups and walls from the first instruction on.

Started by the engine with OOM_SCORE GROUP… -- PLAN REPORT DOOR PROGRAM ARGUMENT…, where each GROUP
is a folder of the cgroup file system, and the next three are descriptors or empty. Nothing but the
interpreter and this folder is loaded.

Without a PLAN we become the program, with the environment that we have. With one (`plan.py`) the
program is a new child of our own parent; so are the first process of its namespace, with which all
that is in there ends, and a copy of us that waits at the DOOR. REPORT is told their numbers, 0 for
what there is not, and why there is no program if so; then we end.

A plan has the program's environment too. Ours has what processes are found by and nothing else:
variables can have the loader of libraries do anything, before a wall is up.
"""

from __future__ import annotations

import os
import sys

from hotplate.deploy.sandbox.launcher.first import look_on
from hotplate.deploy.sandbox.launcher.instructions import FILES, LIMITS, PROCESSES, Instructions
from hotplate.deploy.sandbox.launcher.kernel import (
    NEWIPC,
    NEWNS,
    NEWPID,
    NEWUSER,
    NODEV,
    NOEXEC,
    NOSUID,
    READ_ONLY,
    Kernel,
)
from hotplate.deploy.sandbox.launcher.mount_helper import wait_at
from hotplate.deploy.sandbox.launcher.mounts import Mounts
from hotplate.deploy.sandbox.launcher.privileges import (
    confine,
    separate_family,
    separate_sharers,
    separate_users,
)
from hotplate.deploy.sandbox.launcher.scope import enter_scope, write


def main() -> None:
    """Exits with 127 and a sentence when the program cannot be started."""
    split = sys.argv.index("--")
    score, *groups = sys.argv[1:split]
    plan, report, helper, *program = sys.argv[split + 1 :]
    try:
        enter_scope(score, groups)
        if not plan:
            _become(program, _environment())
    except OSError as error:
        _give_up(program, error)
    walls = _read_instructions(int(plan))
    walled = IsolatedProgram(walls, int(helper) if helper else -1)
    os.set_inheritable(int(report), False)
    why = ""
    try:
        walled.start(program)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    numbers = (walled.program, walled.first, walled.at_helper)
    os.write(int(report), os.fsencode(f"{' '.join(map(str, numbers))} {why}"))
    os._exit(0)


class IsolatedProgram:
    """A program and those beside it, by the numbers of their processes; 0 = there is none."""

    def __init__(self, plan: Instructions, helper: int) -> None:
        """`helper` is a descriptor, or -1."""
        self.program = self.first = self.at_helper = 0
        self._plan = plan
        self._helper = helper
        self._marks = _environment()
        self._kernel = Kernel()
        self._users = -1
        self._groups: list[int] = []

    def start(self, program: list[str]) -> None:
        """Raises OSError where the kernel refuses any part of it."""
        os.umask(0o022)  # whatever the platform's is
        if self._plan.family:  # as long as its file is seen, which the program may not see
            import hotplate.deploy.sandbox.launcher.reaper  # noqa: F401
        if FILES in self._plan.walls:
            self._put_up_files()
        if PROCESSES in self._plan.walls:
            self._separate_processes()
        self.program = self._kernel.fork_sibling()
        if self.program == 0:
            try:
                os.setsid()
                for descriptor in self._plan.family[-1:]:
                    os.set_inheritable(descriptor, False)  # it is the first process's
                confine(self._kernel, self._plan, self._users, self._groups)
                _become(program, self._plan.environment)
            except OSError as error:
                _give_up(program, error)

    def _live_first(self, ready: int) -> None:
        """Says that the namespace is complete, and stays."""
        arguments = self._kernel, self._plan, self._users
        if self._plan.family:
            from hotplate.deploy.sandbox.launcher.reaper import number_apart, reap

            number_apart()
            os.write(ready, b"\0")
            reap(*arguments, self._plan.family[-1])
            os._exit(0)
        os.write(ready, b"\0")
        look_on(*arguments, self._marks)

    def _put_up_files(self) -> None:
        kernel, plan = self._kernel, self._plan
        here = os.getcwd()
        if plan.first_id:
            self._users = self._separate_users()
            kernel.unshare(NEWNS)
        else:
            _leave_as_we_are(kernel)
        kernel.set_attributes("/", private=True)
        files = Mounts(kernel, plan)
        files.make(self._users, separate_sharers(kernel, plan))
        if PROCESSES not in plan.walls:  # processes change there what is theirs
            kernel.set_attributes("/proc", 0, READ_ONLY)
        os.chdir(here)  # else "..", from where we stood before, would lead behind the walls
        self._groups = files.groups
        if self._helper >= 0:
            self._leave_at_helper(files)

    def _separate_users(self) -> int:
        plan = self._plan
        if plan.family:
            return separate_family(self._kernel, plan.first_id, plan.family[:2])
        return separate_users(self._kernel, plan.first_id, limited=LIMITS in plan.walls)

    def _leave_at_helper(self, files: Mounts) -> None:
        os.set_inheritable(self._helper, False)
        self.at_helper = self._kernel.fork_sibling()
        if self.at_helper == 0:
            try:
                wait_at(self._helper, self._kernel, files)
            finally:
                os._exit(0)

    def _separate_processes(self) -> None:
        self._kernel.unshare(NEWPID | NEWIPC)
        answer, result = os.pipe()
        self.first = self._kernel.fork_sibling()
        if self.first == 0:
            try:
                os.setsid()
                self._kernel.mount("proc", "/proc", NOSUID | NODEV | NOEXEC)
                self._live_first(result)
            except OSError as error:
                os.write(result, bytes([error.errno or 1]))
            os._exit(1)
        os.close(result)
        number = int.from_bytes(os.read(answer, 1) or b"\1", "big")
        os.close(answer)
        if number:
            raise OSError(number, os.strerror(number), "/proc")


def _leave_as_we_are(kernel: Kernel) -> None:
    """For namespaces of our own, with the one user that we are."""
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(NEWUSER | NEWNS)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")


def _read_instructions(descriptor: int) -> Instructions:
    with open(descriptor, "rb") as file:
        return Instructions(file.read())


def _environment() -> dict[bytes, bytes]:
    """What we were started with, without what the interpreter has added (LC_CTYPE)."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def _become(program: list[str], environment: dict[bytes, bytes] | dict[str, str]) -> None:
    try:
        os.execve(program[0], program, environment)
    except OSError as error:
        error.filename = None
        raise


def _give_up(program: list[str], error: OSError) -> None:
    where = f"{error.filename}: " if error.filename else ""
    print(
        f"{program[0]} cannot be started in {os.getcwd()}: {where}{error.strerror}", file=sys.stderr
    )
    sys.stderr.flush()
    os._exit(127)
