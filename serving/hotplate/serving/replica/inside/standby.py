"""A process that waits, warm, to become a replica; a program of its own.

It has imported what the last replica of its environment had when it was ready, our hooks are in
place, and on GPUs the context is made and the staging ring pinned. It knows no bento, no secret
and no organization until it gets its job. Python >= 3.9, as `worker.py`.

Standard input is a JSON object: `modules` (file with the names to import), `folder` (its own),
`metrics` (the folder in it for what its libraries count; the parent process moves those files).
`HOTPLATE_STANDBY_FD` is a Unix socket to the parent process:

    →  {"warm": modules, "failed": [names of modules that are not there]}; or {"unusable": why}, and
       it ends
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
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

from hotplate.serving.replica.inside.early_reads import EarlyReads, read_too_early
from hotplate.serving.replica.inside.modules import (
    half_imported,
    import_all,
    noted_modules,
    shadowed,
)
from hotplate.serving.replica.inside.unused_imports import unused_left_out
from hotplate.serving.replica.inside.worker import become, make_home, prepare, run

CHANNEL = "HOTPLATE_STANDBY_FD"
METRICS = "PROMETHEUS_MULTIPROC_DIR"

Become = Callable[[Any], int]


class Warmth(NamedTuple):
    """What a warm process has done before it knows its job."""

    imported: int
    failed: list[str]
    """Modules that could not be imported."""
    unlike: str
    """How it differs from a replica, so that it must not become one; "" = in nothing."""
    env: dict[str, str]
    """The variables that it had."""
    read: set[str]
    """Those that were read while it imported."""
    everywhere: frozenset[str]
    """Modules that every replica has imported before its bento's folder is searched."""


def main(do: Become = become) -> int:
    """Warms up, waits for a job and runs `do` with it; returns the process's exit status."""
    birth = json.load(sys.stdin)
    channel = socket.socket(fileno=int(os.environ.pop(CHANNEL)))
    warmth = warm_up(birth)
    if warmth.unlike:
        say(channel, {"unusable": warmth.unlike})
        return 0
    _touch_gpus()
    gc.collect()
    gc.freeze()  # what all of them have imported need not be looked through again
    say(channel, {"warm": warmth.imported, "failed": warmth.failed})
    return take_job(channel, warmth, do)


def warm_up(birth: dict[str, Any]) -> Warmth:
    """Does what replicas of the environment have in common, and imports what the last one had."""
    metrics = Path(birth["folder"], birth["metrics"])
    metrics.mkdir(exist_ok=True)
    os.environ[METRICS] = str(metrics)  # decides at import whether metrics are files
    make_home()
    env = dict(os.environ)
    with EarlyReads() as early:
        names = noted_modules(birth["modules"])
        prepare(used=names)
        everywhere = frozenset(sys.modules)
        with unused_left_out(used=names):
            failed = import_all(names)
    imported = len(names) - len(failed)
    return Warmth(imported, [*failed], half_imported(failed), env, early.names, everywhere)


def take_job(
    channel: socket.socket, warmth: Warmth, do: Become, unused: Collection[str] = ()
) -> int:
    """Waits for a job and runs `do` with it; returns the process's exit status. The variables
    `unused` may be others than they were."""
    job = _wait(channel)
    if job is None:
        return 0
    if why := _refusal(job, warmth, unused):
        say(channel, {"refused": why})
        return 0
    _change(job["env"])
    os.chdir(job["job"]["bento"])
    sys.path[0] = job["job"]["bento"]
    sys.path_importer_cache.pop(sys.path[0], None)
    say(channel, {"taken": True})  # after which its own folder is removed
    channel.close()
    return do(job["job"])


def _refusal(job: dict[str, Any], warmth: Warmth, unused: Collection[str]) -> str:
    """Why a process that starts from nothing has to do it; "" if this one can."""
    early = read_too_early(warmth.read, warmth.env, job["env"], unused)
    if early:
        return f"{', '.join(early)} had been read when it came"
    bento = job["job"]["bento"]
    own = shadowed([bento, os.path.join(bento, "src")], warmth.everywhere)
    if own:
        return f"its bento has modules of its own named {', '.join(own)}, and others are imported"
    return ""


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


def say(channel: socket.socket, message: dict[str, Any]) -> None:
    """Sends one message, a line."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def _wait(channel: socket.socket) -> Any:
    """The job, with its descriptors in place; None if none will come."""
    try:
        data, fds, _, _ = socket.recv_fds(channel, 1, 3)
    except OSError:  # its other end is gone, with something unused
        return None
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
    """Takes over the replica's variables, and what was made of them."""
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    values: Any = getattr(sys.modules.get("prometheus_client.values"), "ValueClass", None)
    look = getattr(values, "_MmapedValue__check_for_pid_change", None)
    if look is not None:
        look(None)  # after a fork, metrics get files of their own


if __name__ == "__main__":
    run(main)
