"""The WebSockets over which the client finds what prints logs: BentoCloud's pods."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hotplate.platform.api.bentocloud.deployments import named_deployment
from hotplate.platform.api.bentocloud.logs.sockets import answered
from hotplate.platform.api.bentocloud.rollout_watchers import RolloutWatchers
from hotplate.platform.api.web.requests import organization
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.spec.bento_manifest import entry_service, service_names
from hotplate.platform.store.deployments import Deployments
from hotplate.platform.store.records import Deployment, DesiredState

BUILDER = "builder"
PHASES = {"pending": "Pending", "starting": "Pending", "failed": "Failed"}


class Pods:
    """A deployment's replicas, and one more that stands for whatever its roll-out waits for."""

    def __init__(
        self,
        deployments: Deployments,
        controller: ControllerApi,
        watchers: RolloutWatchers,
        settings: ApiSettings,
    ) -> None:
        self._deployments = deployments
        self._controller = controller
        self._watchers = watchers
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/ws/v1/clusters/{cluster}/pods", self.of_bento),
            web.get("/ws/v2/deployments/{name}/pods", self.of_deployment),
        ]

    async def of_bento(self, request: web.Request) -> web.WebSocketResponse:
        """The builders of all deployments of the bento that `selector` names."""

        async def found() -> list[dict[str, Any]]:
            wanted = _labels(request.query.get("selector", ""))
            of_all = await self._deployments.run(
                self._deployments.of_organization, organization(request).id
            )
            mine = [one for one in of_all if wanted.items() <= _bento_labels(one).items()]
            return [self._builder(one) for one in self._watchers.latest_first(mine)]

        return await answered(request, found)

    async def of_deployment(self, request: web.Request) -> web.WebSocketResponse:
        """`GET /ws/v2/deployments/{name}/pods`: the deployment's pods, in one message."""

        async def found() -> list[dict[str, Any]]:
            deployment = await named_deployment(self._deployments, request)
            if deployment.dev:
                return self._code_space(deployment)
            replicas = self._controller.live(deployment.id)["replicas"]
            pods = [self._replica(deployment, replica) for replica in replicas]
            return [self._builder(deployment), *pods]

        return await answered(request, found)

    def _code_space(self, deployment: Deployment) -> list[dict[str, Any]]:
        """One for each service, which is there before anything runs and outlives its replicas: the
        client sends its files once it has seen one run, and looks for pods only then."""
        if deployment.wanted is not DesiredState.RUNNING:
            return []
        return [
            self._service_pod(deployment, service, service, "running", deployment.reason)
            for service in service_names(deployment.latest.bento.manifest)
        ]

    def _builder(self, deployment: Deployment) -> dict[str, Any]:
        return self._pod(deployment, BUILDER, BUILDER, "running", deployment.reason) | {
            "labels": {"yatai.ai/is-bento-image-builder": "true", **_bento_labels(deployment)},
        }

    def _replica(self, deployment: Deployment, replica: dict[str, Any]) -> dict[str, Any]:
        return self._service_pod(
            deployment, replica["id"], replica["service"], replica["state"], replica["reason"]
        )

    def _service_pod(
        self, deployment: Deployment, name: str, service: str, state: str, reason: str
    ) -> dict[str, Any]:
        entry = service == entry_service(deployment.latest.bento.manifest)
        component = "api-server" if entry else "runner"
        return self._pod(deployment, name, service, state, reason) | {
            "labels": {
                "yatai.ai/bento-function-component-type": component,
                **_bento_labels(deployment),
            },
        }

    def _pod(
        self, deployment: Deployment, name: str, runner: str, state: str, reason: str
    ) -> dict[str, Any]:
        phase = PHASES.get(state, "Running")
        ends = state in ("stopping", "draining")
        return {
            "name": pod_name(deployment, name),
            "namespace": self._settings.cluster,
            "runner_name": runner,
            "pod_status": {"status": "Terminating" if ends else phase, "reason": reason},
            "status": {"phase": phase, "ready": state in ("ready", "running")},
        }


def pod_name(deployment: Deployment, name: str) -> str:
    """How the client names a log's source when it asks for it."""
    return f"{deployment.name}/{name}"


def _labels(selector: str) -> dict[str, str]:
    pairs = (term.partition("=") for term in selector.split(",") if term)
    return {key: value for key, _, value in pairs}


def _bento_labels(deployment: Deployment) -> dict[str, str]:
    bento = deployment.latest.bento
    return {
        "yatai.ai/bento-repository": bento.repository.name,
        "yatai.ai/bento": bento.version,
    }
