"""`make cluster-install`: the chart on the test cluster, with a store and a database beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.errors import TestClusterError
from tests.cluster.helm import CHART, RELEASE, VALUES, Helm
from tests.cluster.images import ours
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import Layout, node_address
from tests.cluster.stand_ins import (
    DATABASE_URL,
    PACKAGES_VARIABLES,
    STORE_VARIABLES,
    StandIns,
)

API_PORT = 30070
GATEWAY_PORT = 30080
"""Of every node, as `values.yaml` has them."""
PARTS = (
    (RELEASE, "deployment/hotplate-control-plane"),
    (RELEASE, "deployment/hotplate-gateway"),
    (f"{RELEASE}-agents", "daemonset/hotplate-agent"),
)
"""What runs of it, with its namespace; a gateway is ready after the control plane."""
RELEASE_IS_OURS = "HOTPLATE_RELEASE_IS_OURS"
"""Variable for tests whose suite has installed the release for them."""
_READY_WITHIN = "--timeout=240s"
_SECRETS: Mapping[str, Mapping[str, str]] = {
    "store": {**STORE_VARIABLES, **PACKAGES_VARIABLES},
    "database": {"url": DATABASE_URL},
}
"""Those that `values.yaml` names."""


@dataclass(frozen=True, slots=True)
class Release:
    """The one of this tree's chart, in the namespace of its name."""

    layout: Layout
    helm: Helm
    kubectl: Kubectl
    stand_ins: StandIns

    @classmethod
    def on(cls, cluster: Installation) -> Release:
        """That of our own cluster, whether it is there or not."""
        layout = cluster.layout
        helm = Helm(layout, layout.kubeconfig)
        return cls(layout, helm, Kubectl(layout), StandIns(cluster.daemons))

    def is_there(self) -> bool:
        """Whether Helm knows it, in whatever state."""
        return bool(self._listed())

    def install(self, values: Path | None = None) -> Iterator[str]:
        """Installs it, or changes what has changed, and waits until it is ready; tells each step.

        TestClusterError with the words of what does not start.
        """
        if not self.layout.kubeconfig.exists():
            raise TestClusterError("there is no cluster; run `make cluster-up` before")
        if values is not None and not values.is_file():
            raise TestClusterError(f"there is no file '{values}'; set VALUES to one for the chart")
        yield from self.stand_ins.ensure()
        if [each["status"] for each in self._listed()] == ["uninstalling"]:
            self.uninstall()  # a `helm` that was killed has not come to its end
        if not self.is_there():
            self.stand_ins.forget()
        self.kubectl.apply(_namespace_with_secrets())
        chosen = [VALUES] if values is None else [VALUES, values]
        flags = [f"--namespace={RELEASE}", *(f"--values={file}" for file in chosen)]
        if self._would_change(flags):
            self._upgrade(flags)
            yield f"{RELEASE} installed"
        yield from self._replace_old_images()

    def uninstall(self) -> None:
        """Removes it and waits until nothing of it is left but the namespace that it was in."""
        self.helm("uninstall", RELEASE, f"--namespace={RELEASE}", "--wait", _READY_WITHIN)

    def login(self) -> str:
        """The command that logs in, with its token: nothing of this cluster is worth a secret."""
        endpoint = f"http://{node_address(1)}:{API_PORT}"
        return f"bentoml cloud login --api-token {self.token('admin')} --endpoint {endpoint}"

    def token(self, whose: str) -> str:
        """The `admin`'s or the `cluster`'s."""
        asked = ["secret", "hotplate-tokens", f"--namespace={RELEASE}", "--output=json"]
        data = json.loads(self.kubectl("get", *asked))["data"]
        return base64.b64decode(data[f"{whose}-token"]).decode()

    def _would_change(self, flags: list[str]) -> bool:
        """Whether there is none of this chart and these values, or it did not become ready."""
        if [each["status"] for each in self._listed()] != ["deployed"]:
            return True
        asking = ["upgrade", RELEASE, str(CHART), *flags, "--dry-run=server", "--output=json"]
        wanted = json.loads(self.helm(*asking))["manifest"]
        there = self.helm("get", "manifest", RELEASE, f"--namespace={RELEASE}")
        return bool(wanted.strip() != there.strip())

    def _listed(self) -> list[dict[str, Any]]:
        listed = self.helm("list", f"--namespace={RELEASE}", "--all", "--output=json")
        return [each for each in json.loads(listed) if each["name"] == RELEASE]

    def _upgrade(self, flags: list[str]) -> None:
        # A `helm` that was killed has left its word that it works on it, which keeps others out.
        pending = "owner=helm,status in (pending-install,pending-upgrade,pending-rollback)"
        self.kubectl("delete", "secret", f"--namespace={RELEASE}", f"--selector={pending}")
        upgrading = ["upgrade", "--install", RELEASE, str(CHART), *flags, "--wait", _READY_WITHIN]
        try:
            self.helm(*upgrading)
        except TestClusterError as error:
            raise TestClusterError(f"{error}\n{self._unready()}") from error

    def _replace_old_images(self) -> Iterator[str]:
        """Images have one name whatever is in them, so Kubernetes sees no difference."""
        (product, _) = ours.archives(self.layout)
        for namespace, part in PARTS:
            name = part.partition("/")[2]
            if any(_image(pod) not in ("", product.config_digest) for pod in self._pods(name)):
                where = f"--namespace={namespace}"
                self.kubectl("rollout", "restart", part, where)
                self.kubectl("rollout", "status", part, where, _READY_WITHIN)
                yield f"{name} has another image"

    def _pods(self, part: str) -> list[dict[str, Any]]:
        selector = f"--selector=app.kubernetes.io/name={part}"
        said = self.kubectl("get", "pods", "--all-namespaces", selector, "--output=json")
        return list(json.loads(said)["items"])

    def _unready(self) -> str:
        """What holds back the pods that are not ready, a line each."""
        lines = []
        for _, part in PARTS:
            for pod in self._pods(part.partition("/")[2]):
                lines += [f"{pod['metadata']['name']}: {why}" for why in _held_back(pod)]
        return "\n".join(lines)


def _namespace_with_secrets() -> list[dict[str, Any]]:
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE, "labels": level}}
    secrets = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": RELEASE},
            "stringData": dict(data),
        }
        for name, data in _SECRETS.items()
    ]
    return [own, *secrets]


def _image(pod: dict[str, Any]) -> str:
    """The digest of its container's, empty before it has one."""
    (container,) = pod["status"].get("containerStatuses") or [{}]
    return str(container.get("imageID", "")).rpartition("@")[2]


def _held_back(pod: dict[str, Any]) -> Iterator[str]:
    for container in pod["status"].get("containerStatuses", ()):
        if not container["ready"]:
            state = container["state"].get("waiting") or container["state"].get("terminated") or {}
            last = container.get("lastState", {}).get("terminated", {}).get("message", "")
            said = [state.get("reason", "it runs, and is not ready"), state.get("message"), last]
            yield " ".join(filter(None, said))
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            yield str(condition.get("message", ""))
