"""Takes organizations down before a release is uninstalled, while agents still unmount volumes.

The control plane goes first: it would make anew what is deleted. Then the deployments go; their
pods end as in any scale-down, with what runs in them. When the last pod of a namespace has gone,
what held its deployments until then, the control plane's finalizer, is taken off, and the namespace
goes. Not before: Kubernetes looks again at one that it finds pods in after half the time that they
may take to end, which is the longest time of a request. Gateways go last, as who uninstalls waits
for what Helm has made, and not for its pods.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
FINALIZER = "hotplate.dev/drain"
LABEL = "app.kubernetes.io/part-of=hotplate"
LOOK_EVERY_S = 1.0
"""A watch would tell, and need more than the standard library, which is all that the hook has."""


class Cluster:
    """The API server, asked as the pod's account."""

    def __init__(self) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._url = f"https://{host}:{port}"
        self._trusted = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")

    def ask(self, method: str, path: str, change: object = None) -> Any:
        """What it answers; None where what was asked for is not there."""
        with open(f"{ACCOUNT}/token") as token:
            headers = {
                "Authorization": f"Bearer {token.read()}",
                "Content-Type": "application/merge-patch+json",
            }
        body = None if change is None else json.dumps(change).encode()
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._trusted, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise


def drain(cluster: Cluster, release: str) -> None:
    """Returns when neither an organization's namespace nor a pod that serves them is left."""
    _end(cluster, release, "hotplate-control-plane")
    ended: set[str] = set()
    told: set[str] = set()
    while left := _organizations(cluster, release):
        for name in left:
            if name not in ended:
                print(f"{name} is drained", flush=True)
                deployments = f"/apis/apps/v1/namespaces/{name}/deployments"
                cluster.ask("DELETE", f"{deployments}?labelSelector={LABEL}")
                ended.add(name)
            elif not _has_pods(cluster, name):
                _let_go(cluster, name)
                if name not in told:
                    cluster.ask("DELETE", f"/api/v1/namespaces/{name}")
                    told.add(name)
        time.sleep(LOOK_EVERY_S)  # a cluster is asked again, and no loop runs here
    _end(cluster, release, "hotplate-gateway")


def _end(cluster: Cluster, release: str, part: str) -> None:
    """Returns when a Deployment of the release has no pod."""
    deployment = f"/apis/apps/v1/namespaces/{release}/deployments/{part}"
    cluster.ask("PATCH", f"{deployment}/scale", {"spec": {"replicas": 0}})
    selector = f"labelSelector=app.kubernetes.io/name={part}"
    while cluster.ask("GET", f"/api/v1/namespaces/{release}/pods?{selector}")["items"]:
        time.sleep(LOOK_EVERY_S)  # a cluster is asked again, and no loop runs here


def _organizations(cluster: Cluster, release: str) -> list[str]:
    listed = cluster.ask("GET", f"/api/v1/namespaces?labelSelector={LABEL}")["items"]
    names = [each["metadata"]["name"] for each in listed]
    return [name for name in names if name.startswith(f"{release}-t-")]


def _has_pods(cluster: Cluster, namespace: str) -> bool:
    """Of ours, or what makes them: those of others end with the namespace."""
    where = f"namespaces/{namespace}"
    paths = (f"/apis/apps/v1/{where}/replicasets", f"/api/v1/{where}/pods")
    return any(cluster.ask("GET", f"{path}?labelSelector={LABEL}")["items"] for path in paths)


def _let_go(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for anchor in cluster.ask("GET", f"{path}?labelSelector={LABEL}")["items"]:
        meta = anchor["metadata"]
        if FINALIZER in meta.get("finalizers", ()):
            others = [each for each in meta["finalizers"] if each != FINALIZER]
            change = {"metadata": {"finalizers": others}}
            cluster.ask("PATCH", f"{path}/{meta['name']}", change)


if __name__ == "__main__":
    drain(Cluster(), sys.argv[1])
