"""The agents of the chart on the test cluster's nodes, and pods that mount volumes of theirs."""

from __future__ import annotations

import base64
import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.ticket import TICKET, Ticket, key_of, signed
from tests.cluster.helm import Helm
from tests.cluster.images.ours import reference
from tests.cluster.kubectl import Kubectl
from tests.cluster.stand_ins import STORE_URL, STORE_VARIABLES
from tests.support.cache.fakes import publish

_SECRET = "store"
_MOVED = ("hotplate_cache_origin_bytes_total", "hotplate_cache_peer_bytes_total")


@dataclass(frozen=True)
class Agents:
    """Those of one release, without its other parts."""

    kubectl: Kubectl
    release: str
    folder: Path
    token: str

    @classmethod
    def install(cls, helm: Helm, kubectl: Kubectl, release: str, folder: Path) -> Agents:
        """Makes them, and returns when one of each node is ready."""
        values = {"blobs": {"secretName": _SECRET}, "agent": {"memory": "512MiB"}}
        objects = helm.rendered(release, values, folder)
        own = f"{release}-agents"
        kept = [one for one in objects if _of_agents(one, own)]
        data = {key: _encoded(value) for key, value in STORE_VARIABLES.items()}
        meta = {"name": _SECRET, "namespace": own}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
        kept.sort(key=lambda one: one["kind"] != "Namespace")
        kubectl.apply([*kept, secret])
        (tokens,) = [one for one in kept if one["metadata"]["name"] == "hotplate-tokens"]
        token = base64.b64decode(tokens["data"]["cluster-token"]).decode()
        made = cls(kubectl, release, folder, token)
        made.await_ready()
        return made

    def remove(self) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--timeout=60s")
        self.kubectl("delete", "csidriver", "agent.hotplate.dev")

    @property
    def namespace(self) -> str:
        return f"{self.release}-agents"

    def await_ready(self) -> None:
        where = [f"--namespace={self.namespace}", "--timeout=90s"]
        self.kubectl("rollout", "status", "daemonset/hotplate-agent", *where)
        for node in ("node1", "node2"):
            path = "jsonpath={.spec.drivers[0].name}"
            self.kubectl.wait(
                "wait", f"--for={path}=agent.hotplate.dev", f"csinode/{node}", timeout_s=30
            )

    def keep(self, files: dict[str, bytes | None]) -> Manifest:
        """A tree that the release's blob store has."""
        place = Path(tempfile.mkdtemp(dir=self.folder))  # without what was kept before
        manifest = publish(place, files)
        store = fsspec.filesystem("s3", client_kwargs=_client())
        store.put(f"{place}/", f"{STORE_URL}/", recursive=True)
        return manifest

    def blobs(self) -> BlobStore:
        """The release's."""
        return BlobStore(STORE_URL, client_kwargs=_client())

    def note(self, name: str) -> dict[str, Any]:
        """What the release's blob store says under that name."""
        store = fsspec.filesystem("s3", client_kwargs=_client(), use_listings_cache=False)
        return dict(json.loads(store.cat_file(f"{STORE_URL}/{name}.json")))

    def pod(self, node: str) -> dict[str, Any]:
        """The agent's of that node."""
        fields = f"--field-selector=spec.nodeName={node}"
        listed = self.kubectl("get", "pods", f"--namespace={self.namespace}", fields, "-ojson")
        (found,) = json.loads(listed)["items"]
        return dict(found)

    def moved_bytes(self, node: str) -> tuple[int, int]:
        """What the node has fetched from the origin, and from peers."""
        address = self.pod(node)["status"]["podIP"]
        head = {"Authorization": f"Bearer {self.token}"}
        asked = urllib.request.Request(f"http://{address}:7900/metrics", headers=head)
        with urllib.request.urlopen(asked, timeout=10) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines()]
        sums = {each[0].partition("{")[0]: 0.0 for each in lines if each}
        for each in lines:
            if len(each) == 2 and each[0].partition("{")[0] in _MOVED:
                sums[each[0].partition("{")[0]] += float(each[1])
        origin, peers = (int(sums[name]) for name in _MOVED)
        return origin, peers

    def kill(self, node: str) -> None:
        """Kills the container's process, by SIGKILL."""
        (process,) = [
            one for one in _processes() if {b"agent", f"--node={node}".encode()} <= one[1]
        ]
        os.kill(process[0], signal.SIGKILL)

    def signed(self, ticket: Ticket) -> str:
        return signed(ticket, key_of(self.token))

    def mount(
        self,
        namespace: str,
        name: str,
        node: str,
        ticket: str,
        program: str,
        own: Sequence[str] = (),
    ) -> None:
        """Makes a pod at the level `restricted`, in which the program finds its volume. It has
        folders of its own at these paths, each a volume of the path's last name."""
        folders = {path.rpartition("/")[2]: path for path in own}
        container = {
            "name": "own",
            "image": reference("hotplate-runtime"),
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3.11", "-c", program],
            "env": [{"name": "PYTHONPATH", "value": "/hotplate/parts"}],
            "volumeMounts": [
                {
                    "name": "hotplate",
                    "mountPath": "/hotplate",
                    "readOnly": True,
                    "mountPropagation": "HostToContainer",
                },
                *({"name": each, "mountPath": path} for each, path in folders.items()),
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
        }
        given = {"driver": "agent.hotplate.dev", "readOnly": True}
        volume = {**given, "volumeAttributes": {TICKET: ticket}}
        spec = {
            "nodeName": node,
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                {"name": "hotplate", "csi": volume},
                *({"name": each, "emptyDir": {"sizeLimit": "1Gi"}} for each in folders),
            ],
        }
        meta = {"name": name, "namespace": namespace}
        self.kubectl.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}])


def _of_agents(manifest: dict[str, Any], namespace: str) -> bool:
    meta, kind = manifest["metadata"], manifest["kind"]
    named = (kind, meta["name"]) == ("Namespace", namespace)
    hook = "helm.sh/hook" in meta.get("annotations", {})
    return (named or kind == "CSIDriver" or meta.get("namespace") == namespace) and not hook


def _client() -> dict[str, str]:
    return {
        "endpoint_url": STORE_VARIABLES["AWS_ENDPOINT_URL"],
        "aws_access_key_id": STORE_VARIABLES["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": STORE_VARIABLES["AWS_SECRET_ACCESS_KEY"],
        "region_name": STORE_VARIABLES["AWS_DEFAULT_REGION"],
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _processes() -> list[tuple[int, set[bytes]]]:
    """Those of this machine, with the words of their commands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append((int(path.parent.name), set(path.read_bytes().split(b"\0"))))
        except OSError:  # it has ended
            continue
    return found
