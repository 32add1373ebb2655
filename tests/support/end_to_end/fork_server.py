"""Imports the bentoml client and our command line once, and runs each command in a fork of itself.

The imports take 1.3 s and 0.4 s of processor time: most of what a command costs, and the scenarios
run about a hundred. A command is what the `bentoml` or `hotplate` script would run, in a process of
its own.

Its one argument is a listening Unix socket. A caller sends a line of JSON and gets what the command
prints, then one byte with its exit status, which is 128 or more if a signal ended it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

# Also what commands import only when they are called.
import _bentoml_sdk  # noqa: F401
import bentoml  # noqa: F401
import pip_requirements_parser  # noqa: F401
import rich_toolkit  # noqa: F401
from bentoml_cli.cli import cli

import hotplate.platform.commands.status
import hotplate.platform.processes.supervisor  # noqa: F401
from hotplate.platform.cli import main

PR_SET_PDEATHSIG = 1
SCRIPTS: dict[str, Callable[[], Any]] = {"bentoml": cli, "hotplate": main}


def serve(listener: socket.socket) -> str:
    """Answers callers; returns only in the process of a command: the program that it has to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of those who wait for commands
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with caller.makefile("rb") as lines:
                asked = json.loads(lines.readline())
            pid = os.fork()
            if pid == 0:
                listener.close()
                return become(caller, **asked)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            caller.sendall(bytes([status if status >= 0 else 128 - status]))
            os._exit(0)
        caller.close()


def become(
    caller: socket.socket, argv: list[str], program: str, environ: dict[str, str], folder: str
) -> str:
    """Makes this process the command's; its program."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for output in (1, 2):
        os.dup2(caller.fileno(), output)
    caller.close()
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = argv
    sys.path[:1] = [""] if program else []
    return program


def leave() -> None:
    """Ends the process as it stands: to take apart what it has imported would take 0.3 s."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.freeze()  # no fork is to look through, and so to copy, what all of them have
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        program = serve(listener)
    status = 1
    atexit.register(leave)  # it runs after what the command registers
    try:
        if not program:
            sys.exit(SCRIPTS[sys.argv[0]]())
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
