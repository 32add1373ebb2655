"""An engine on the test cluster, in namespaces of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.engine import KubernetesEngine
from hotplate.deploy.cluster.pod_spec import PodReport, PodRuntime, PodSpec
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.engine import Replica
from hotplate.deploy.workload import Resources, Workload
from tests.cluster.images.ours import reference
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.deploy.conformance import NONE
from tests.support import patience
from tests.support.deploy.cluster import workload

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

    report_path = ""

    async def pod_spec(self, given: Workload, service_account: str, namespace: str) -> PodSpec:
        program = FAILS if given.key.service == "Failing" else SERVES
        imageless = given.key.service == "Imageless"
        image = "hotplate.test/none:1" if imageless else reference("hotplate-runtime")
        return PodSpec(image=image, command=("python3.11", "-u", "-c", program), job={})

    def subscribe(self, changed: Callable[[], None]) -> None:
        pass

    def reported(self, content: bytes) -> PodReport | None:
        return None


class ClusterEngineUnderTest:
    patience_s = 90.0
    removes_exactly = False

    def __init__(
        self,
        cluster: Installation,
        kubectl: Kubectl,
        *,
        release: str = "",
        kubeconfig: Path | None = None,
    ) -> None:
        """As the admin, or as whom a kubeconfig names; in a release of its own, or that one."""
        self._kubeconfig, self._kubectl = str(kubeconfig or cluster.layout.kubeconfig), kubectl
        own = release or f"test-{uuid.uuid4().hex[:8]}"
        self._settings = ClusterSettings(look_s=2.0, release=own)
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

    def without_image(self, name: str) -> Workload:
        key = replace(self.serving(name).key, service="Imageless")
        return replace(self.serving(name), key=key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ClusterEngineUnderTest]:
        """It ends with all that it has made."""
        await self.start()
        try:
            yield self
            async with asyncio.timeout(self.patience_s):
                await self.engine.stop_all()
        finally:
            await self.engine.close()
            gone = ("--ignore-not-found", "--wait=false")
            self._kubectl("delete", "namespace", self.namespace, *gone)
            self._kubectl.let_go(self.namespace)

    async def written(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        """Returns once the condition holds; `within_s` is how long putting right may take."""

        async def holds() -> bool:
            return await asyncio.to_thread(condition)

        await patience.until(holds, within_s)

    async def looked(self) -> None:
        """Returns once the engine has had time to look again."""
        await asyncio.sleep(self._settings.look_s + 1.0)
