"""What keeps a program from the platform, from this machine and from other programs.

A replica of an ordinary user's platform runs as that user, so namespaces of its own (Linux 5.14,
and that this user may make some) are all that does.

A program is started in three steps. Its `process_scope` (a control group, else a marker) puts the
`launcher` where the kernel holds it; the launcher reads its instructions on a descriptor
(`launch`), puts the walls up, has the program come out of it, says which processes it has made, and
ends. The walls of what a program forks are put up by a launcher that stays, and does each in
a child of its own. What a program sees of this machine's files is a `visible_files`; its
mount helper shows a standby more of them later. Which walls can be put up here is tried once, when
an `Isolation` is made: `refusals` says why not, and then programs run without those.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import signal
import socket
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hotplate.deploy.errors import SpawnFailed
from hotplate.deploy.process.detached import Process, launch, until_reaped
from hotplate.deploy.sandbox import syscall_filter
from hotplate.deploy.sandbox.family import Family, NestedNamespaces
from hotplate.deploy.sandbox.ids import BUILDS, SHARED, free_range, give, range_of, take
from hotplate.deploy.sandbox.launch import Launch
from hotplate.deploy.sandbox.launcher import instructions as plan
from hotplate.deploy.sandbox.mount_helper import MountHelper
from hotplate.deploy.sandbox.private_places import hidden_places, needed_of_them
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, ProcessScope, entry, launcher_argv
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from hotplate.machine.background import thread_to_its_end, until_done
from hotplate.machine.foreign_folder import ForeignFolder

LIMIT_S = 10.0
"""For what takes milliseconds, on a machine that is busy: a try, or the walls of one fork."""
_HARMLESS = ("/bin/sh", "-c", ":")
_TEMPORARY = "tmp"
_WITHOUT = {
    plan.FILES: "nothing hides the files of the platform and of other replicas (files)",
    plan.PROCESSES: "nothing hides other processes (processes)",
    plan.USERS: "replicas are users of this machine outside (ids)",
    plan.DEVICES: "nothing hides the machine's devices (devices)",
    plan.LIMITS: "replicas can lift their limits (limits)",
    plan.CALLS: "replicas can make every call of the kernel (calls)",
}
"""What it means that a wall is away; in brackets, how `hotplate doctor` names it."""


class Isolation:
    """Around each program of one engine."""

    def __init__(
        self,
        hidden: Sequence[Path] = (),
        *,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
    ) -> None:
        """`hidden` are folders, by their real paths, of which a program sees what it needs only, as
        of homes and the like. `reads` and `writes` are shown to every program, if they are there.

        Tries once what this user may do here.
        """
        self._hidden = [path for path in hidden if path.is_absolute() and path != Path("/")]
        self._reads, self._writes = list(reads), list(writes)
        self._rng = random.SystemRandom()
        self.up: frozenset[str] = frozenset()
        """The walls that are put up, by their names (`launcher.instructions.WALLS`)."""
        self.refusals: dict[str, str] = {}
        """Why the others of those that this user could have are not, by their names."""
        self.refusal = "nothing is to be hidden"
        """Why no files are hidden; empty when they are."""
        if self._hidden:
            self._detect()
            self.refusal = self.refusals.get(plan.FILES, "")

    @property
    def missing(self) -> str:
        """Why walls of those that this user could have are not put up; empty when all are."""
        if not self.refusals:
            return self.refusal
        return "; ".join(f"{_WITHOUT[wall]}: {why}" for wall, why in self.refusals.items())

    def mount_helper(self) -> MountHelper:
        """One to pass to `spawn`; where there are no walls, it leads nowhere."""
        return MountHelper(wanted=plan.FILES in self.up)

    def claim(self, own: Path, others: Iterable[Path]) -> None:
        """Have ids that are nobody else's for the program with that folder, which becomes theirs;
        `others` are the folders of all other programs. Raises OSError."""
        if plan.USERS in self.up:
            owners = (about.st_uid for about in map(_about, others) if about is not None)
            first = free_range(owners, self._rng)
            os.chown(own, first, first)

    async def give_builds(self, folder: Path) -> None:
        """Have builds, whichever they are, write a folder and all that is in it. Raises OSError."""
        if plan.USERS in self.up:
            await asyncio.to_thread(give, folder, BUILDS)

    async def take(self, folder: Path) -> None:
        """Make what a program has made there the platform's. Raises OSError."""
        if plan.USERS in self.up:
            await asyncio.to_thread(take, folder)

    async def hand_over(self, folder: Path, log: Path, to: Path) -> None:
        """Give a folder and a log to the program with the folder `to`. Raises OSError."""
        if first := self._first_id(to):
            await thread_to_its_end(asyncio.to_thread(furnish, folder, log, (), first))

    async def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | Path,
        log_path: str | Path,
        *,
        view: VisibleFiles,
        scope: ProcessScope,
        stdin_json: Any = None,
        pass_fds: Collection[int] = (),
        helper: MountHelper | None = None,
        family: Family | None = None,
    ) -> Process:
        """Start `argv` in the scope and within walls, as `Process.spawn` does.

        `view.own` becomes the program's user's, with all that is in it. Through the
        helper it may be shown more later. With a family it may fork, where `forks_refused` says
        nothing against it. Raises `SpawnFailed` and OSError.
        """
        if not self.up:
            words = [*launcher_argv(scope.entry), "", "", "", *argv]
            return Process.spawn(words, env, cwd, log_path, stdin_json, pass_fds, scope)
        await self._furnish(view, log_path)
        entering = self.entering(view, env, family)
        at_helper = helper.descriptors if helper is not None else []
        at_first = family.descriptors if family is not None else []
        try:
            us = launch(
                [*launcher_argv(scope.entry), *entering.words(at_helper), *argv],
                {REPLICA_DIR: env[REPLICA_DIR]} if REPLICA_DIR in env else {},
                cwd,
                log_path,
                stdin_json,
                [*pass_fds, *at_helper, *at_first, *entering.descriptors],
            )
        finally:
            entering.close_inherited()
        through = asyncio.ensure_future(_through(us, entering, scope, helper, family))
        try:
            return await asyncio.shield(through)
        except asyncio.CancelledError:
            await until_done(_end(through))
            raise

    @property
    def forks_refused(self) -> str:
        """Why a program here cannot fork others within walls of their own; empty when it can."""
        lacking = [wall for wall in plan.WALLS if wall not in self.up]
        return f"there are no walls around {', '.join(lacking)}" if lacking else ""

    async def nest(
        self, view: VisibleFiles, log_path: str | Path, *, scope: ProcessScope, family: Family
    ) -> NestedNamespaces:
        """Put up walls in the scope for what the family's program forks next.

        `view.own` becomes that one's user's, with all that is in it. When it fails, the scope may
        have processes. Raises `SpawnFailed` and OSError.
        """
        await self._furnish(view, log_path)
        ours, theirs = socket.socketpair()
        lines = self._lines(view, self._first_id(Path(view.own)), self.up)
        entering = Launch(lines)
        mark = f"{REPLICA_DIR}={view.own}"
        with ours:
            try:
                with theirs:
                    family.put_up([mark, *scope.entry], entering.descriptors, log_path, theirs)
            finally:
                entering.close_inherited()
            nesting = asyncio.ensure_future(_nested(entering, ours, lines, family))
            try:
                return await asyncio.shield(nesting)
            except asyncio.CancelledError:
                await until_done(_undo(nesting))
                raise

    def entering(
        self, view: VisibleFiles, env: Mapping[str, str], family: Family | None = None
    ) -> Launch:
        """A way in for one program that sees this and has these variables."""
        variables = [(plan.VARIABLE, name, value) for name, value in env.items()]
        first = self._first_id(Path(view.own))
        lines = self._lines(view, first, self.up, enters=family is not None)
        return Launch([*lines, *variables, *([family.line] if family is not None else [])])

    async def _furnish(self, view: VisibleFiles, log_path: str | Path) -> None:
        if view.own:
            layers = [Path(own) for _, own in view.layers]
            first = self._first_id(Path(view.own))
            own, log = Path(view.own), Path(log_path)
            await thread_to_its_end(asyncio.to_thread(furnish, own, log, layers, first))

    def _first_id(self, own: Path) -> int:
        """Of the range that the folder's owner is in; 0 where programs are ourselves."""
        if plan.USERS not in self.up:
            return 0
        about = _about(own)
        return (about and range_of(about.st_uid)) or BUILDS

    def _lines(
        self, view: VisibleFiles, first: int, up: Iterable[str], *, enters: bool = False
    ) -> list[plan.Line]:
        places = hidden_places()
        ours = ((plan.READ, "", self._reads), (plan.WRITE, plan.SHARED, self._writes))
        lines = [(plan.WALL, wall, "") for wall in up]
        lines += [(plan.HIDE, str(path), "") for path in (*self._hidden, *places)]
        lines += [(plan.READ, path, "") for path in needed_of_them()]
        lines += [
            (verb, path, whose)
            for verb, whose, paths in ours
            for path in paths
            if os.path.exists(path)
        ]
        lines += [(plan.READ, path, "") for path in view.reads]
        lines += [(plan.WRITE, path, "") for path in view.writes]
        lines += [(plan.LAYER, folder, own) for folder, own in view.layers]
        lines += [(plan.OWN, view.own, "")] if view.own else []
        lines += [(plan.IDS, str(first), str(SHARED))] if first and plan.USERS in up else []
        if plan.CALLS in up:
            lines.append((plan.FILTER, _filter(plan.USERS in up, enters), _filter_call()))
        return lines

    def _detect(self) -> None:
        """Which walls can be put up: all, or those of them that can one after the other."""
        wanted = [wall for wall in plan.WALLS if wall != plan.USERS or os.geteuid() == 0]
        try:
            _filter(False, False)
        except LookupError as error:
            wanted.remove(plan.CALLS)
            self.refusals[plan.CALLS] = str(error)
        if not self._try(wanted):
            self.up = frozenset(wanted)
            return
        up: list[str] = []
        for wall in wanted:
            if why := self._try([*up, wall]):
                self.refusals[wall] = why
            else:
                up.append(wall)
        self.up = frozenset(up)

    def _try(self, up: Collection[str]) -> str:
        """Why these cannot be put up together; empty when they can."""
        if plan.FILES not in up and {plan.PROCESSES, plan.USERS, plan.DEVICES}.intersection(up):
            return self.refusals.get(plan.FILES, "")
        entering = Launch(self._lines(VisibleFiles(), BUILDS, up))
        try:
            argv = [*launcher_argv(entry((), 0)), *entering.words(), *_HARMLESS]
            fds = entering.descriptors
            # Where we are may be hidden, and a program without a folder of its own is nowhere else.
            tried = subprocess.Popen(argv, env={}, cwd="/", stderr=subprocess.PIPE, pass_fds=fds)
        except OSError as error:
            return str(error)
        finally:
            entering.close_inherited()
        try:
            complaint = tried.communicate(timeout=LIMIT_S)[1].decode(errors="replace").strip()
        except subprocess.TimeoutExpired as error:
            tried.kill()
            tried.communicate()
            return str(error)
        try:
            entered = entering.entered_now()
        except SpawnFailed as error:
            return complaint or str(error)
        ended_well = not _ended(entered.program) and not entered.why_not
        if entered.first:
            os.kill(entered.first, signal.SIGKILL)
            _ended(entered.first)
        return "" if ended_well else entered.why_not or complaint.partition("\n")[0]


async def _through(
    us: int,
    entering: Launch,
    scope: ProcessScope,
    helper: MountHelper | None,
    family: Family | None,
) -> Process:
    """The program that the launcher, which is the process `us`, has made. Raises `SpawnFailed`."""
    try:
        entered = await entering.entered()
    finally:
        await until_reaped(us)
    beside = [pid for pid in (entered.first, entered.at_helper) if pid]
    if entered.why_not:
        for pid in beside:
            os.kill(pid, signal.SIGKILL)
            await until_reaped(pid)
        raise SpawnFailed(f"It cannot be isolated: {entered.why_not}.")
    if helper is not None:
        helper.waits = entered.at_helper
    if family is not None:  # what is first there lives as long as there is anything forked
        family.begin(entered.program, entered.first)
        return Process.of_child(entered.program)
    return Process.of_child(entered.program, scope, beside)


async def _nested(
    entering: Launch, channel: socket.socket, lines: list[plan.Line], family: Family
) -> NestedNamespaces:
    """The walls that the family's wall maker has put up. Raises `SpawnFailed`."""
    try:
        async with asyncio.timeout(LIMIT_S):
            entered = await entering.entered()
    except TimeoutError:
        family.give_walls_up()
        raise SpawnFailed(f"The walls of a fork are not up after {LIMIT_S:g} s.") from None
    if entered.why_not:
        raise SpawnFailed(f"It cannot be isolated: {entered.why_not}.")
    _, (*namespaces, first), _, _ = socket.recv_fds(channel, 1, 5)
    instructions = os.memfd_create("plan")
    os.write(instructions, plan.written(lines))
    return NestedNamespaces(tuple(namespaces), instructions, _pid_of(first), first)


def _pid_of(pidfd: int) -> int:
    about = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return next(int(line.split()[1]) for line in about.splitlines() if line.startswith("Pid:"))


async def _end(through: asyncio.Future[Process]) -> None:
    """What comes through, if anything does, and all beside it."""
    with contextlib.suppress(SpawnFailed):
        await (await through).terminate(0)


async def _undo(nesting: asyncio.Future[NestedNamespaces]) -> None:
    """The walls that were to be put up, if they are."""
    with contextlib.suppress(SpawnFailed):
        walls = await nesting
        walls.end()
        walls.close()


def furnish(own: Path, log: Path, layers: Iterable[Path], first: int) -> None:
    """A program's folder as it finds it: with one for temporary files, and its own user's."""
    with ForeignFolder.open(own) as theirs:
        # An earlier program, such as a build's step before, may have put anything in its place.
        owner = theirs.make_folder(_TEMPORARY, 0o1777, unless_owned_by=first or None)
    if first and owner == first:
        return  # as an earlier program of this folder's has found it
    for folder in (layer / each for layer in layers for each in ("upper", "work")):
        folder.mkdir(parents=True, exist_ok=True)
    if first:
        give(own, first)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fchown(descriptor, first, first)
        os.close(descriptor)


@functools.cache
def _filter(own_users: bool, enters: bool) -> str:
    """In hex. Raises LookupError where the machine's calls are not known."""
    return syscall_filter.program(own_users=own_users, enters=enters).hex()


def _filter_call() -> str:
    """How a filter is installed: the call, its mode and its flags."""
    call = syscall_filter.SECCOMP[os.uname().machine]
    return f"{call} {syscall_filter.SET_MODE} {syscall_filter.SPEC_ALLOW}"


def _about(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _ended(child: int) -> int:
    """What it ended with; 127 for none."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 127
