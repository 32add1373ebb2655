"""Imports what every replica does, and becomes a replica in each fork, as standbys become one.

The imports are most of what a replica's start takes of the processor. Its arguments are a listening
Unix socket and the modules. They are none of ours: a replica imports those from where the platform
has put them. A caller sends JSON and three descriptors (job, log, listening socket), and gets the
replica's process id in a line, then its exit status.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping

PR_SET_PDEATHSIG = 1


def serve(listener: socket.socket) -> str:
    """Answers callers; returns only in a replica's process: the module that it has to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of those who wait for replicas
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            data, descriptors, _, _ = socket.recv_fds(caller, 1 << 20, 3)
            pid = os.fork()
            if pid == 0:
                listener.close()
                caller.close()
                return become(descriptors, **json.loads(data))
            for descriptor in descriptors:
                os.close(descriptor)
            caller.sendall(b"%d\n" % pid)
            caller.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
        caller.close()


def become(descriptors: list[int], module: str, env: Mapping[str, str], folder: str) -> str:
    """Makes this process the replica's; its module."""
    job, log, listening = descriptors
    os.setsid()
    for source, target in ((job, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(job)
    os.close(log)
    os.set_inheritable(listening, True)
    os.environ.clear()
    os.environ.update(env, HOTPLATE_LISTEN_FD=str(listening))
    os.chdir(folder)
    sys.path[:1] = [folder, *env["PYTHONPATH"].split(os.pathsep)]
    return module


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        # Decides at import whether metrics are files; each replica has a folder of its own.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = os.path.dirname(listener.getsockname())
        for name in sys.argv[2:]:
            importlib.import_module(name)
        module = serve(listener)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
