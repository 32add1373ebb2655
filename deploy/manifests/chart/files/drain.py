"""Takes organizations down before a release is uninstalled, while agents still unmount volumes.

The control plane goes first: it would make anew what is deleted. Then the organizations' namespaces
go; their pods end as in any scale-down, with what runs in them. What held their deployments until
then, the control plane's finalizer, is taken off when the last pod of a namespace has gone.
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
    """Returns when no organization's namespace is left."""
    control_plane = f"/apis/apps/v1/namespaces/{release}/deployments/hotplate-control-plane"
    cluster.ask("PATCH", f"{control_plane}/scale", {"spec": {"replicas": 0}})
    selector = "labelSelector=app.kubernetes.io/name=hotplate-control-plane"
    while cluster.ask("GET", f"/api/v1/namespaces/{release}/pods?{selector}")["items"]:
        time.sleep(LOOK_EVERY_S)
    told: set[str] = set()
    while left := _organizations(cluster, release):
        for name in left:
            if name not in told:
                print(f"{name} is drained", flush=True)
                cluster.ask("DELETE", f"/api/v1/namespaces/{name}")
                told.add(name)
            elif not cluster.ask("GET", f"/api/v1/namespaces/{name}/pods")["items"]:
                _let_go(cluster, name)
        time.sleep(LOOK_EVERY_S)


def _organizations(cluster: Cluster, release: str) -> list[str]:
    listed = cluster.ask("GET", f"/api/v1/namespaces?labelSelector={LABEL}")["items"]
    names = [each["metadata"]["name"] for each in listed]
    return [name for name in names if name.startswith(f"{release}-t-")]


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
