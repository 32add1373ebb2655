"""The first program of a pod: makes what is the replica's own, and becomes its worker.

What the node has made available lies below `/hotplate`, where the replica only reads; the job, its
variables and the contents of its secret files are in folders of their own (`deploy.cluster.objects`
has them there); what it writes is below `/scratch`, which is cleared first, because a container
starts again in the same pod. Python >= 3.9, standard library only.

As the first process of its container it stays: signals without a handler do not reach such a
process, and nobody else buries what others leave. Then the worker is its child, and what ends the
one ends the other.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hotplate.serving.replica.inside.learnt import LearntFiles, begin
from hotplate.serving.replica.inside.own_folder import add_model, copy_bento
from hotplate.serving.streaming.start_clock import note_launch

NODE, SCRATCH = Path("/hotplate"), Path("/scratch")
JOB = Path("/job/job.json")
VARIABLES, SECRET_FILES = Path("/secrets/env.json"), Path("/secrets/files.json")
PORT = 3000
BACKLOG = 1024
"""Whoever asks while the service starts waits here, or has given up when it is accepted."""
FOLDERS = ("PROMETHEUS_MULTIPROC_DIR", "TMPDIR")
"""Variables that name folders which are there before the worker is."""
DEPENDS = "HOTPLATE_DEPENDS"
"""The part of the job that has a secret in it, so that it comes with the variables."""
WORKER = "hotplate.serving.replica.inside.worker"
PASSED_ON = frozenset(
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
)

Job = dict[str, Any]


def main() -> None:
    """Returns never."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    note_launch(os.environ)
    try:
        os.environ.update(_json(VARIABLES))
        job = _job()
        _clear(SCRATCH)
        _make_own(job)
        begin(NODE, SCRATCH)
        listener = socket.create_server(("0.0.0.0", PORT), backlog=BACKLOG)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"The replica cannot be prepared: {type(error).__name__}: {error}")
    if os.getpid() != 1:
        _become_worker(job, listener, before)
    child = os.fork()
    if child == 0:
        _become_worker(job, listener, before)
    listener.close()
    _stay_first(child, LearntFiles(NODE, SCRATCH))


def _job() -> Job:
    """What the worker is to do: as the control plane says, and what the node and secrets add."""
    job: Job = _json(JOB)
    absent = [str(NODE / path) for path in _json(NODE / "job.json").get("absent", ())]
    job["absent"] = [path for path in absent if not os.path.exists(path)]
    job["depends"] = json.loads(os.environ.pop(DEPENDS, "{}"))
    files = _json(SECRET_FILES)
    if files:
        job["secrets"]["files"] = files
    else:
        del job["secrets"]
    return job


def _make_own(job: Job) -> None:
    """The replica's folders: its copy of the bento, its home with the store of its models."""
    for name in FOLDERS:
        os.makedirs(os.environ[name])
    copy_bento(NODE / "bento", Path(job["bento"]))
    for name, version in job["models"]:
        home = Path(os.environ["BENTOML_HOME"])
        add_model(home, name, version, NODE / "models" / name / version)


def _clear(folder: Path) -> None:
    """Remove what a container before us has left, also what nobody may write to."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(os.path.join(parent, name)):
                with suppress(OSError):
                    os.chmod(os.path.join(parent, name), 0o700)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _become_worker(job: Job, listener: socket.socket, mask: Any) -> NoReturn:
    """Its job is on its standard input, and it listens already."""
    given = os.memfd_create("hotplate-job")
    with open(given, "w", closefd=False) as file:
        json.dump(job, file)
    os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    os.set_inheritable(listener.fileno(), True)
    os.environ["HOTPLATE_LISTEN_FD"] = str(listener.fileno())
    os.chdir(job["bento"])
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.execv(sys.executable, [sys.executable, "-m", WORKER])


def _stay_first(child: int, learnt: LearntFiles) -> NoReturn:
    """Pass signals on and bury the dead, until the worker has ended: then all others do."""
    while True:
        number = signal.sigwait({*PASSED_ON, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        for pid, status in _ended():
            if pid == child:
                learnt.last()
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)


def _ended() -> list[tuple[int, int]]:
    """Children that have ended, and with what."""
    found = []
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no JSON object")
    return content


if __name__ == "__main__":
    main()
