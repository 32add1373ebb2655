"""A node with an agent and pods: kubelet's side of the agent, and programs that see what pods see.

The node is a mount namespace of its own with folders whose mounts are seen by all that are made
of it, as on a real one; each agent has one made of it, as a container with `Bidirectional` mounts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.manifest import Manifest
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.cache.volumes.ticket import TICKET, Ticket, Use, VolumeModel, key_of
from tests.support.as_user import __file__ as AS_USER
from tests.support.cache.fakes import AgentProcess, OriginServer, PacedOrigin, publish
from tests.support.patience import PATIENCE_S

TOKEN = "the cluster's token"
KEY = key_of(TOKEN)
USER = 10001
_NODE = """
mount --bind "$0" "$0" && mount --make-rshared "$0" && echo ready && exec sleep infinity
"""


@dataclass(frozen=True)
class Pod:
    """What kubelet says of a pod, and where it wants its volume."""

    name: str
    target: Path
    namespace: str = "hotplate-t-acme"
    account: str = "h-hello-1-hello"

    @property
    def volume(self) -> str:
        return f"csi-{self.name}"

    def attributes(self, ticket: str) -> dict[str, str]:
        own = "csi.storage.k8s.io/"
        return {
            TICKET: ticket,
            f"{own}ephemeral": "true",
            f"{own}pod.name": self.name,
            f"{own}pod.namespace": self.namespace,
            f"{own}serviceAccount.name": self.account,
        }


@dataclass(frozen=True)
class Shown:
    """The trees of a revision."""

    bento: Manifest
    environment: Manifest
    model: Manifest

    @property
    def ticket(self) -> Ticket:
        return Ticket(
            namespace="hotplate-t-acme",
            service_account="h-hello-1-hello",
            organization="acme",
            deployment="hello",
            revision=1,
            service="Hello",
            use=Use.REPLICA,
            bento=self.bento.digest,
            environment=self.environment.digest,
            models=(VolumeModel("bert", "v1", self.model.digest),),
        )


class PodBench:
    """Below one folder; the agent is killed and started at will."""

    def __init__(self, folder: Path, node: int) -> None:
        self.folder = folder
        self.kubelet = folder / "kubelet"
        self.data = folder / "data"
        self.store = folder / "store"
        self.origin = PacedOrigin(FsspecOrigin(f"file://{self.store}"))
        self.server = OriginServer(self.store, self.origin)
        self._node = ["nsenter", f"--mount=/proc/{node}/ns/mnt"]

    def agent(self, **options: Any) -> AgentProcess:
        """`origin` is another URL of the blob store."""
        inside = [*self._node, "unshare", "--mount", "--propagation=unchanged"]
        given = {"token": TOKEN, "kubelet": str(self.kubelet), "arena_limit_bytes": 1 << 28}
        origin = options.pop("origin", self.server.url)
        return AgentProcess(self.data, origin, inside, **given, **options)

    def revision(self, weights: bytes) -> Shown:
        """One whose trees the blob store has."""
        bento = {"bento.yaml": b"service: hello", "src/hello.py": b"import hello"}
        environment = {"bin/python.sh": b"#!/bin/sh", "lib/hello.py": b"x = 1"}
        model = {"config.json": b"{}", "model.safetensors": weights}
        return Shown(*(publish(self.store, each) for each in (bento, environment, model)))

    def pod(self, name: str, **about: str) -> Pod:
        """One whose folders kubelet has made."""
        volumes = self.kubelet / "pods" / name / "volumes" / "kubernetes.io~csi" / "hotplate"
        volumes.mkdir(parents=True, exist_ok=True)
        return Pod(name, volumes / "mount", **about)

    def publish(self, pod: Pod, ticket: str, **more: str) -> None:
        """Raises grpc.RpcError."""
        attributes = {**pod.attributes(ticket), **more}
        self.ask(
            "csi.v1.Node/NodePublishVolume",
            volume_id=pod.volume,
            target_path=str(pod.target),
            readonly=True,
            volume_context=attributes,
        )

    def unpublish(self, pod: Pod) -> None:
        self.ask(
            "csi.v1.Node/NodeUnpublishVolume", volume_id=pod.volume, target_path=str(pod.target)
        )

    def ask(self, method: str, **fields: Any) -> Any:
        """What the plugin answers kubelet."""
        import grpc

        from hotplate.cache.volumes.messages import CSI

        name = method.rpartition("/")[2]
        with grpc.insecure_channel(
            f"unix:{self.kubelet}/plugins/agent.hotplate.dev/csi.sock"
        ) as at:
            call = at.unary_unary(
                f"/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=CSI[f"{name}Response"].FromString,
            )
            return call(CSI[f"{name}Request"](**fields), timeout=PATIENCE_S, wait_for_ready=True)

    def mounts(self) -> list[str]:
        """What the node has mounted for pods: place and flags."""
        text = self.on_node("cat", "/proc/self/mountinfo")
        lines = [line.split() for line in text.splitlines()]
        below = f"{self.kubelet}/"
        return sorted(f"{line[4]} {line[5]}" for line in lines if line[4].startswith(below))

    def on_node(self, *command: str) -> str:
        done = subprocess.run([*self._node, *command], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def in_pod(self, program: str, *given: str) -> Any:
        """What a Python program of a pod's user prints as JSON; it may import our modules."""
        said, _ = self.program_in_pod(program, *given).communicate(timeout=PATIENCE_S)
        return json.loads(said)

    def program_in_pod(self, program: str, *given: str) -> subprocess.Popen[str]:
        """The same, while it runs."""
        paths = [path for path in sys.path if os.path.isdir(path)]
        folders = [sys.prefix, sys.base_prefix, *paths, str(self.folder)]
        change = [sys.executable, AS_USER, str(USER), *folders, "--"]
        text = f"import json, sys\nsys.path[:0] = json.loads(sys.argv.pop(1))\n{program}"
        python = [sys.executable, "-c", text, json.dumps(paths), *given]
        return subprocess.Popen(
            [*self._node, *change, *python],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@contextlib.contextmanager
def pod_bench() -> Iterator[PodBench]:
    """Skips the test where it cannot be."""
    pytest.importorskip("grpc", reason="needs grpcio, as agents of a cluster do: make install")
    if os.getuid() != 0 or not shutil.which("nsenter"):
        pytest.skip("needs root and nsenter, to mount as an agent does in its pod")
    # A socket's address is short, and other users have to get there.
    with tempfile.TemporaryDirectory(prefix="hotplate-pods-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "kubelet" / "pods").mkdir(parents=True)
        start = ["unshare", "--mount", "--propagation=private", "sh", "-c", _NODE, name]
        with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as node:
            try:
                assert node.stdout is not None and node.stdout.readline() == "ready\n"
                bench = PodBench(folder, node.pid)
                yield bench
                bench.origin.release()
                bench.server.close()
            finally:
                node.kill()
