"""What replicas on a GPU run: a plain server, or BentoML's worker with a bento."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol

from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.phases import Phase, Recorder
from hotplate.deploy.workload import Resources, Workload, WorkloadKey
from hotplate.machine.unix_address import short_path, unix_path
from hotplate.serving.replica.inherited import for_replica
from hotplate.serving.replica.inside.modules import BASICS
from hotplate.serving.replica.variables import COUNTS, platform_constants, platform_variables
from loadtests.gpu.finding import ensure
from loadtests.harness.child_process import checkout_environ

ANSWER_S = 30.0
METRICS = "metrics"
SERVICE = """
import bentoml
from loadtests.gpu.kernel import answer, has_context

HAD_CONTEXT = has_context()

@bentoml.service
class Kernel:
    def __init__(self) -> None:
        answer()

    @bentoml.api
    def work(self) -> dict:
        return answer() | {"had_context": HAD_CONTEXT}
"""


class Program(Protocol):
    def command(self, workload: Workload, folder: Path) -> Command:
        """The command of a cold start; `folder` is empty and the replica's own."""

    def warm(self, folder: Path) -> Warm:
        """How a standby of it is started; `folder` is for the files that standbys read."""


class PlainServer:
    """A server that needs PyTorch and nothing else."""

    def command(self, workload: Workload, folder: Path) -> Command:
        argv = (sys.executable, "-m", "loadtests.gpu.replica_server")
        return Command(argv, _environ(), str(folder), {"bento": str(folder)})

    def warm(self, folder: Path) -> Warm:
        argv = (sys.executable, "-m", "loadtests.gpu.standby_server")
        return Warm("torch", argv, _environ(), _warm_job(folder, ["torch"]))


class Bento:
    """A bento in this Python's own environment, as the runtime starts one in its environment."""

    def command(self, workload: Workload, folder: Path) -> Command:
        home = folder / "home"
        (home / COUNTS).mkdir(parents=True)
        bento = _write_bento(folder / "bento")
        python = Path(sys.executable)
        return Command(
            argv=(str(python), "-m", "hotplate.serving.replica.inside.worker"),
            env={**_environ(), **platform_variables(workload, home, python)},
            cwd=str(bento),
            job={
                "bento": str(bento),
                "service": workload.key.service,
                "entry": True,
                "depends": {},
                "overrides": {},
                "workers": 1,
                "slots": 1,
                "journal": str(folder / "journal"),
                "modules": str(folder / "modules"),
                "stop_grace_s": workload.stop_grace_s,
                "absent": [],
                "notes": [],
            },
        )

    def warm(self, folder: Path) -> Warm:
        python = Path(sys.executable)
        argv = (str(python), "-m", "hotplate.serving.replica.inside.standby")
        env = {**_environ(), **platform_constants(python)}
        takes = {METRICS: f"home/{COUNTS}"}
        return Warm("bento", argv, env, _warm_job(folder, ["torch", *BASICS]), takes_along=takes)


class Programs:
    """A runtime that starts one of them."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        return self._program.command(workload, Path(directory))

    async def keep(self, directory: str, *, ended: bool) -> None:
        """Nothing is kept."""

    async def self_report(self, directory: str) -> None:
        """They report nothing."""

    async def phases(self, directory: str) -> Sequence[Phase]:
        return []


def workload(gpus: float) -> Workload:
    return Workload(
        key=WorkloadKey("acme", "kernel", 1, "Kernel"),
        bento_name="kernel",
        bento_version="v1",
        bento_manifest="",
        resources=Resources(gpus=gpus),
        stop_grace_s=5.0,
    )


def work(address: str) -> dict[str, Any]:
    """The answer of the replica at `host:port`, or at `unix:` and a path. Raises OSError."""
    path = unix_path(address)
    connection = HTTPConnection("localhost" if path else address, timeout=ANSWER_S)
    if path is not None:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(ANSWER_S)
        with short_path(path) as name:
            connection.sock.connect(name)
    with closing(connection):
        connection.request("POST", "/work", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
    ensure(answer.status == 200, f"the replica answered {answer.status}: {found}")
    return found


def _environ() -> Mapping[str, str]:
    """Those of our variables that replicas inherit."""
    return for_replica(os.environ) | {"PYTHONPATH": checkout_environ()["PYTHONPATH"]}


def _warm_job(folder: Path, modules: Sequence[str]) -> dict[str, str]:
    file = folder / "modules.json"
    file.write_text(json.dumps(modules))
    return {"modules": str(file), "metrics": METRICS}


def _write_bento(folder: Path) -> Path:
    """As `bentoml build` would; JSON is YAML too."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "service.py").write_text(SERVICE)
    about = {
        "service": "service:Kernel",
        "name": "kernel",
        "version": "v1",
        "bentoml_version": "1.4.39",
        "creation_time": "2026-01-01T00:00:00+00:00",
        "labels": {},
        "models": [],
        "entry_service": "Kernel",
        "services": [{"name": "Kernel", "service": "", "models": [], "config": {}}],
        "envs": [],
        "schema": {},
        "args": {},
        "spec": 2,
        "image": {"python_version": "3.11", "commands": [], "python_requirements": ""},
    }
    (folder / "bento.yaml").write_text(json.dumps(about))
    return folder
