"""A process that has imported what its environment's replicas need, and forks them; a program of
its own. Python >= 3.9, as `standby.py`.

Standard input is as a standby's, and has `temporary`: the folder of which each fork has one of its
own, "" where there is none. `HOTPLATE_TEMPLATE_FD` is a Unix socket (stream) to the engine:

    →  {"warm": modules, "failed": [names of modules that are not there]} once it can be forked;
       or {"unforkable": which module left what}, or {"unusable": why}, and it ends
    ←  one byte and descriptors: the child's channel, and within walls the namespaces that it
       enters (users, processes, IPC, mounts) and the instructions for what it does itself

The child, on its channel:

    →  {"forked": process id as it knows itself}, with its credentials, so that the engine has the
       id as it knows the child; or {"refused": why}
    ←  its job, and so on: from here on it is a standby

Template and children end with their own channels; a child only until it is a replica.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

from hotplate.deploy.sandbox.launcher.joining import confine_child, enter
from hotplate.serving.replica.inside.forking.left_files import LeftFiles
from hotplate.serving.replica.inside.forking.leftovers import Leftovers
from hotplate.serving.replica.inside.forking.rehearsal import rehearse
from hotplate.serving.replica.inside.forking.reseeding import reseed
from hotplate.serving.replica.inside.forking.shown_variables import show_variables
from hotplate.serving.replica.inside.modules import note_before_fork
from hotplate.serving.replica.inside.processes import ForkedWorker, Worker, supervise
from hotplate.serving.replica.inside.standby import Become, say, take_job, warm_up
from hotplate.serving.replica.inside.worker import become, run

CHANNEL = "HOTPLATE_TEMPLATE_FD"
REPLICA_DIR = "HOTPLATE_REPLICA_DIR"
"""By this variable an engine that has lost a replica finds its processes."""
MOST_DESCRIPTORS = 6
CREDENTIALS = struct.Struct("iII")
"""`struct ucred`: process, user, group."""
UNUSED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Variables that count when a context is made, which no template does."""


class Request(NamedTuple):
    """For one child."""

    channel: socket.socket
    walls: Sequence[int]
    """Descriptors of what it enters and of its instructions; empty where there are no walls."""

    def close(self) -> None:
        self.channel.close()
        for descriptor in self.walls:
            os.close(descriptor)


def serve(job: dict[str, Any]) -> int:
    """What a child does with its job: of several workers, it forks each. Returns the exit status of
    a replica that has failed, or has several workers."""
    show_variables(os.environ, REPLICA_DIR)
    return become(job) if job["workers"] == 1 else supervise(job, _forked)


def main(do: Become = serve) -> int:
    """Warms up and forks children; returns the exit status of the template, or of a child."""
    birth = json.load(sys.stdin)
    channel = socket.socket(fileno=int(os.environ.pop(CHANNEL)))
    _read_nothing_more()
    itself = os.getpid()
    with Leftovers([channel.fileno()], Path(birth["folder"], birth["metrics"])) as leftovers:
        warmth = warm_up(birth)
        rehearse()
    if os.getpid() != itself:  # a module has forked, and we are its child
        return 0
    if warmth.unlike:
        say(channel, {"unusable": warmth.unlike})
        return 0
    files = LeftFiles(birth["temporary"])
    if why := leftovers.sentence() or files.sentence():
        say(channel, {"unforkable": why})
        return 0
    note_before_fork()
    gc.collect()
    gc.disable()  # it would write to pages that are shared
    gc.freeze()
    say(channel, {"warm": warmth.imported, "failed": warmth.failed})
    own = Forks(channel, leftovers).child()
    if own is None:
        return 0
    reseed()

    def begin(job: dict[str, Any]) -> int:
        files.put()
        return do(job)

    return take_job(own, warmth, begin, UNUSED)


class Forks:
    """Forks a child for each request on `channel`, until that ends."""

    def __init__(self, channel: socket.socket, leftovers: Leftovers) -> None:
        self._channel = channel
        self._leftovers = leftovers

    def child(self) -> Optional[socket.socket]:  # noqa: UP045
        """Returns in each child its channel, and in the template None once its own has ended."""
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child is waited for
        while True:
            request = self._next()
            if request is None:
                return None
            try:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
                    return self._separate(request)
            except OSError as error:
                _refuse(request, error)
            request.close()

    def _next(self) -> Optional[Request]:  # noqa: UP045
        while True:
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._channel, 1, MOST_DESCRIPTORS)
            except OSError:  # its other end is gone, with something unread
                return None
            if not data:
                return None
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if not descriptors:
                continue
            request = Request(socket.socket(fileno=descriptors[0]), descriptors[1:])
            if not flags & socket.MSG_CTRUNC:
                return request
            _refuse(request, OSError("some of its descriptors have not arrived"))
            request.close()

    def _separate(self, request: Request) -> socket.socket:
        """Has a child of this first child, which ends, be nobody's; returns in that one.

        A namespace of processes holds only for the children of whoever enters it.
        """
        try:
            self._close_others(request)
            if request.walls:
                enter(request.walls[:-1])
            if os.fork():
                os._exit(0)
            os.setsid()
            if request.walls:
                confine_child(request.walls[-1])
            _introduce(request.channel)
        except OSError as error:
            _refuse(request, error)
            os._exit(0)
        return request.channel

    def _close_others(self, request: Request) -> None:
        self._channel.close()
        own = {request.channel.fileno(), *request.walls}
        for descriptor in self._leftovers.descriptors().keys() - own:
            os.close(descriptor)


def _forked(job: dict[str, Any], other_gate: int) -> Worker:
    def work() -> None:
        reseed()
        run(lambda: become(job, job["worker"], job["gate"]))

    return ForkedWorker(work, other_gate)


def _introduce(channel: socket.socket) -> None:
    """Says who it is; the kernel tells the engine by which process id the engine knows it."""
    itself = CREDENTIALS.pack(os.getpid(), os.getuid(), os.getgid())
    line = json.dumps({"forked": os.getpid()}).encode() + b"\n"
    channel.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, itself)])


def _refuse(request: Request, error: OSError) -> None:
    with suppress(OSError):  # the engine has given it up
        say(request.channel, {"refused": f"it could not be forked: {error}"})


def _read_nothing_more() -> None:
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)


if __name__ == "__main__":
    run(main)
