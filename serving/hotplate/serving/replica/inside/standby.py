"""A process that waits, warm, to become a replica; a program of its own.

It has imported what the last replica of its environment had when it was ready, our hooks are in
place, and on GPUs the context is made and the staging ring pinned. It knows no bento, no secret
and no organization until it gets its job. Python >= 3.9, as `worker.py`.

Standard input is a JSON object: `modules` (file with the names to import), `folder` (its own),
`metrics` (the folder in it for what its libraries count; the parent process moves those files).
`HOTPLATE_STANDBY_FD` is a Unix socket to the parent process:

    →  {"warm": modules, "failed": [names that could not be imported]}
    ←  one byte and three descriptors: the job (JSON: `env`, `job` as a worker's), the listening
       socket, the log
    →  {"taken": true}, and it is the replica; or {"refused": why}, and it ends

It ends with its parent process, unless it has become a replica.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotplate.serving.replica.inside.early_reads import EarlyReads, read_too_early
from hotplate.serving.replica.inside.full_disk import survive_full_disk
from hotplate.serving.replica.inside.modules import import_all, noted_modules
from hotplate.serving.replica.inside.unused_imports import unused_left_out
from hotplate.serving.replica.inside.worker import become, make_home, run, stream_weights

CHANNEL = "HOTPLATE_STANDBY_FD"
METRICS = "PROMETHEUS_MULTIPROC_DIR"


def main(do: Callable[[Any], int] = become) -> int:
    """Warms up, waits for a job and runs `do` with it; returns the process's exit status."""
    birth = json.load(sys.stdin)
    channel = socket.socket(fileno=int(os.environ.pop(CHANNEL)))
    metrics = Path(birth["folder"], birth["metrics"])
    metrics.mkdir(exist_ok=True)
    os.environ[METRICS] = str(metrics)  # decides at import whether metrics are files
    make_home()
    before = dict(os.environ)
    with EarlyReads() as early:
        survive_full_disk()
        stream_weights()
        names = noted_modules(birth["modules"])
        with unused_left_out(used=names):
            failed = import_all(names)
        _touch_gpus()
    gc.collect()
    gc.freeze()  # what all of them have imported need not be looked through again
    _say(channel, {"warm": len(names) - len(failed), "failed": failed})
    job = _wait(channel)
    if job is None:
        return 0
    if early_names := read_too_early(early.names, before, job["env"]):
        _say(channel, {"refused": f"{', '.join(early_names)} had been read when it came"})
        return 0
    _change(job["env"])
    os.chdir(job["job"]["bento"])
    sys.path[0] = job["job"]["bento"]
    sys.path_importer_cache.clear()
    _say(channel, {"taken": True})  # after which its own folder is removed
    channel.close()
    return do(job["job"])


def _touch_gpus() -> None:
    """Makes the context of each GPU, and pins the memory through which weights reach it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return
    if not torch.cuda.is_available():
        return
    from hotplate.serving.streaming.device import device_for
    from hotplate.serving.streaming.staging import ring_of

    for index in range(torch.cuda.device_count()):
        torch.empty(1, device=f"cuda:{index}")
        device = device_for(index)
        if device is not None:
            ring_of(device).fill()


def _say(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _wait(channel: socket.socket) -> Any:
    """The job, with its descriptors in place; None if none will come."""
    data, fds, _, _ = socket.recv_fds(channel, 1, 3)
    if not data:
        return None
    job_file, listener, log = fds
    with open(job_file, "rb") as file:
        file.seek(0)
        job = json.load(file)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.set_inheritable(listener, True)
    job["env"]["HOTPLATE_LISTEN_FD"] = str(listener)
    return job


def _change(env: dict[str, str]) -> None:
    """Takes over the replica's variables."""
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None


if __name__ == "__main__":
    run(main)
