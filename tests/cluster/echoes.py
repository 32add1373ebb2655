"""Pods that answer with their name and the address of the caller, and a Service before them."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from tests.cluster.images.small import image_name
from tests.cluster.kubectl import Kubectl

PORT = 3000
_READY_WITHIN = "60s"
_ANSWER_WITHIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Echo:
    """One pod."""

    name: str
    node: str
    address: str


@dataclass(frozen=True, slots=True)
class Echoes:
    """One on each real node, in one namespace."""

    kubectl: Kubectl
    namespace: str

    def start(self) -> list[Echo]:
        """Starts them and the Service `echo` before them, and waits until they answer."""
        self.kubectl.apply([_deployment(self.namespace), _service(self.namespace)])
        self.await_ready()
        return self.pods()

    def await_ready(self) -> None:
        """Waits until each is ready."""
        target = ["daemonset/echo", f"--namespace={self.namespace}", f"--timeout={_READY_WITHIN}"]
        self.kubectl("rollout", "status", *target)

    def pods(self) -> list[Echo]:
        """Those that there are, by the name of their node."""
        pods = self.get("pods")["items"]
        found = [
            Echo(pod["metadata"]["name"], pod["spec"]["nodeName"], pod["status"].get("podIP", ""))
            for pod in pods
        ]
        return sorted(found, key=lambda pod: pod.node)

    def service_address(self) -> str:
        """The address of the Service within the cluster."""
        return str(self.get("service/echo")["spec"]["clusterIP"])

    def node_port(self) -> int:
        """The port of each node at which the Service answers."""
        return int(self.get("service/echo")["spec"]["ports"][0]["nodePort"])

    def get(self, what: str) -> Any:
        """What the API server says of an object, or of all of a kind."""
        return json.loads(
            self.kubectl("get", what, f"--namespace={self.namespace}", "--output=json")
        )

    def asked_inside(self, pod: Echo, url: str) -> str:
        """What the pod is answered at a URL."""
        target = [f"--namespace={self.namespace}", pod.name]
        return self.kubectl("exec", *target, "--", "/echo", url)


def answer_of(address: str) -> str:
    """What the host is answered; OSError if nothing is."""
    with urllib.request.urlopen(f"http://{address}/", timeout=_ANSWER_WITHIN_S) as answer:
        return str(answer.read().decode())


def _deployment(namespace: str) -> dict[str, Any]:
    container = {
        "name": "echo",
        "image": image_name("echo"),
        "imagePullPolicy": "Never",
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
    }
    pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
    labels = {"app": "echo"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "echo", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "echo", "namespace": namespace},
        "spec": {
            "type": "NodePort",
            "selector": {"app": "echo"},
            "ports": [{"port": 80, "targetPort": PORT}],
        },
    }
