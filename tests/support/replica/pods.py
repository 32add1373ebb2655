"""Pods without a cluster: what a pod is made of, laid out as a kubelet and an agent would, and its
program in a container."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotplate.cache.origins.hubs import Hubs
from hotplate.deploy.cluster.objects import USER
from hotplate.deploy.cluster.pod_spec import PodSpec
from hotplate.deploy.workload import Workload
from hotplate.serving.replica.bento import Bento, read_bento
from hotplate.serving.replica.payload import make_payload
from hotplate.serving.replica.pods.bentos import Bentos
from hotplate.serving.replica.pods.environments import Environments, PodEnvironment
from hotplate.serving.replica.secret_values import SecretSet
from tests.support.patience import PATIENCE_S
from tests.support.replica import container

MANIFEST = "ab" * 32
_NEWNET = 0x40000000
_IMAGE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""Variables of the runtime image."""


class OneBento(Bentos):
    """Whatever is asked for, it is this."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def get(self, manifest: str) -> Bento:
        return read_bento(self.folder, Hubs())


class OneEnvironment(Environments):
    """It is there, unless there is trouble."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.given: list[SecretSet] = []
        self.changed: Callable[[], None] = lambda: None

    async def of(self, workload: Workload, bento: Bento, secrets: SecretSet) -> PodEnvironment:
        self.given.append(secrets)
        if self.trouble is not None:
            raise self.trouble
        return PodEnvironment("digest", MANIFEST, "runtime:3.11", workload.owned_by)

    def subscribe(self, changed: Callable[[], None]) -> None:
        self.changed = changed


def lay_out(
    folder: Path,
    spec: PodSpec,
    bento: Path,
    models: Mapping[str, Path] | None = None,
    absent: Sequence[str] = (),
) -> None:
    """What the pod finds in its folders; `models` are by NAME/VERSION."""
    node = folder / "hotplate"
    node.mkdir(parents=True)
    shutil.copytree(bento, node / "bento")
    shutil.copytree(make_payload(folder / "payload"), node / "parts")
    for name, source in (models or {}).items():
        shutil.copytree(source, node / "models" / name)
    (node / "job.json").write_text(json.dumps({"absent": list(absent)}))
    for name in ("job", "secrets"):
        (folder / name).mkdir()
    for place, content in {
        "job/job.json": dict(spec.job),
        "secrets/env.json": dict(spec.env),
        "secrets/files.json": dict(spec.files),
    }.items():
        (folder / place).write_text(json.dumps(content))
    for name in ("scratch", "memory"):
        (folder / name).mkdir()
        os.chown(folder / name, 0, USER)
        (folder / name).chmod(0o2777)
    (folder / "env").symlink_to(sys.prefix)


class Pod:
    """Its container, while it runs."""

    def __init__(self, folder: Path, spec: PodSpec, uid: str) -> None:
        env = {**_IMAGE, **spec.container_env, "HOTPLATE_REPLICA_UID": uid}
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, container.__file__, str(folder), sys.base_prefix, "--"),
                    *spec.command,
                ],
                env=env,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        with self.process.stdout as told:
            self.pid = int(told.readline())
        self._network = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        self._callers = ThreadPoolExecutor(4, initializer=_enter, initargs=(self._network,))

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Future[Any]:
        """The answer to `GET path`, or to a `POST` of that body; urllib's errors."""
        return self._callers.submit(_asked, path, body)

    def get(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.ask(path, body).result(PATIENCE_S)

    def is_ready(self, path: str = "/readyz") -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.get(path)
        except OSError:
            return False
        return True

    def end(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        self.ended()
        self._callers.shutdown()
        os.close(self._network)

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def running(folder: Path, spec: PodSpec, uid: str = "uid-1") -> Iterator[Pod]:
    """Its container in these folders, which may have been there before; killed at the end."""
    pod = Pod(folder, spec, uid)
    try:
        yield pod
    finally:
        pod.close()


def _enter(network: int) -> None:
    """Have this thread's connections begin there."""
    if ctypes.CDLL(None, use_errno=True).setns(network, _NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _asked(path: str, body: Mapping[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:3000{path}", data, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        content = answer.read()
    return json.loads(content) if content.startswith((b"{", b"[", b'"')) else content
