"""The engine of a cluster does what every engine has to do, with pods of real nodes."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.engine import KubernetesEngine
from hotplate.deploy.cluster.pod_spec import PodRuntime, PodSpec
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.engine import Replica
from hotplate.deploy.workload import Resources, Workload
from tests.cluster.images.ours import reference
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.deploy.conformance import NONE, Conformance
from tests.support.deploy.cluster import workload

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

ORGANIZATION = "acme"
SERVES = """
import http.server, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
print("it serves", flush=True)
http.server.ThreadingHTTPServer(("", 3000), Handler).serve_forever()
"""
FAILS = "print('it is broken'); raise SystemExit(3)"


class Programs(PodRuntime):
    """Each workload is a program of one line or several; its name says which."""

    async def pod_spec(self, given: Workload, service_account: str, namespace: str) -> PodSpec:
        program = FAILS if given.key.service == "Failing" else SERVES
        command = ("python3.11", "-u", "-c", program)
        return PodSpec(image=reference("hotplate-runtime"), command=command, job={})


class ClusterEngineUnderTest:
    patience_s = 90.0
    removes_exactly = False

    def __init__(self, cluster: Installation, kubectl: Kubectl) -> None:
        self._kubeconfig, self._kubectl = str(cluster.layout.kubeconfig), kubectl
        self._settings = ClusterSettings(release=f"test-{uuid.uuid4().hex[:8]}")
        self.namespace = f"{self._settings.release}-t-{ORGANIZATION}"
        self.engine: KubernetesEngine

    def serving(self, name: str, resources: Resources = NONE) -> Workload:
        given = workload(name, organization=ORGANIZATION, resources=resources)
        return replace(given, request_timeout_s=1.0)

    def failing(self, name: str) -> Workload:
        key = replace(self.serving(name).key, service="Failing")
        return replace(self.serving(name), key=key)

    def too_large(self, name: str) -> Workload:
        return self.serving(name, Resources(cpus=1000))

    async def end(self, replica: Replica) -> None:
        own = f"--namespace={self.namespace}"
        self._kubectl("delete", "pod", replica.id, own, "--grace-period=0", "--force")

    async def start(self) -> None:
        api = await ClusterApi.connect(self._kubeconfig)
        self.engine = KubernetesEngine(api, Programs(), lambda: [ORGANIZATION], self._settings)
        await self.engine.start()

    async def restart(self) -> None:
        await self.engine.close()
        await self.start()


@pytest.fixture
async def under_test(
    cluster: Installation, kubectl: Kubectl
) -> AsyncIterator[ClusterEngineUnderTest]:
    made = ClusterEngineUnderTest(cluster, kubectl)
    await made.start()
    yield made
    await made.engine.stop_all()
    await made.engine.close()
    kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")


class TestKubernetesEngine(Conformance):
    """With pods."""
