"""The v2 deployments of BentoCloud: made, changed, stopped, deleted, looked at.

These are the calls of the stock `bentoml` client, as its releases make them. A
deploy is: `repositories` and `artifacts` register a version, `archives/` takes its bytes and
unpacks them, `deployment_source` finds the bento that a deployment names and waits until its files
are here, and this file stores the wanted config and pokes the controller. The client then asks for
the status until it settles (`rollout_watchers`) and follows `logs/`. `views` has its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.deployment_source import DeploymentSource
from hotplate.platform.api.bentocloud.rollout_watchers import BUILDING, RolloutWatchers
from hotplate.platform.api.web.etags import ConditionalChanges
from hotplate.platform.api.web.requests import (
    COUNT_UNSAID,
    access,
    body,
    caller,
    check_cluster,
    organization,
    query_count,
    query_filter,
    query_start,
)
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Invalid
from hotplate.platform.log_format import events
from hotplate.platform.processes.ports import is_everywhere
from hotplate.platform.spec.annotations import check_annotations
from hotplate.platform.spec.canary_fields import canary_fields
from hotplate.platform.spec.deployment_config import deployment_config
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.label_settings import check_label_settings
from hotplate.platform.spec.names import check_deployment_name, invent_deployment_name
from hotplate.platform.store.canaries import NO_CANARY, CanaryDraft
from hotplate.platform.store.deployments import Deployments, RevisionDraft
from hotplate.platform.store.records import Artifact, Deployment, User

CLIENT_HEADER = "X-Bentoml-Version"
"""The stock client sends it with every call."""


class DeploymentRoutes:
    """`/api/v2/deployments`: changes the store and pokes the controller, which does the rest."""

    def __init__(
        self,
        deployments: Deployments,
        source: DeploymentSource,
        controller: ControllerApi,
        watchers: RolloutWatchers,
        settings: ApiSettings,
    ) -> None:
        self._deployments = deployments
        self._source = source
        self._controller = controller
        self._watchers = watchers
        self._settings = settings
        self._changes = ConditionalChanges()

    def routes(self) -> list[web.RouteDef]:
        root = "/api/v2/deployments"
        one = root + "/{name}"
        return [
            web.post(root, self.create),
            web.get(root, self.list_all),
            web.get(one, self.get),
            web.put(one, self.update),
            web.delete(one, self.delete),
            web.post(one + "/terminate", self.terminate),
            web.put(one + "/void_update", self.roll_out_again),
        ]

    async def create(self, request: web.Request) -> web.Response:
        """A name that is taken is a conflict, never an update: `deploy` is always a POST."""
        self._check_cluster(request)
        await self._controller.admit(organization(request).name)
        fields = await body(request)
        bento = await self._source.bento(organization(request), fields.text("bento"))
        dev = fields.flag("dev")
        _check_packed(bento, dev=dev)
        config = deployment_config(fields, bento.manifest, self._instance_types())
        if fields.has("name"):
            name = check_deployment_name("name", fields.text("name"))
        else:
            name = invent_deployment_name(bento.repository.name)
        labels = _checked_labels(fields)
        deployment = await self._deployments.run(
            self._deployments.create,
            caller(request),
            name,
            self._draft(bento, config, labels, caller(request)),
            labels,
            host=request.url.host or "",
            canary=await self._canary(request, fields, config, labels),
            dev=dev,
        )
        return await self._rolled_out(request, deployment)

    async def update(self, request: web.Request) -> web.Response:
        """The whole config anew; it starts a terminated deployment. Labels null = unchanged.
        `If-Match` is the tag of our own `GET …/hotplate/deployments/NAME`."""
        deployment = await self._named(request)
        await self._controller.admit(organization(request).name)
        fields = await body(request)
        bento = await self._source.bento(organization(request), fields.text("bento"))
        _check_packed(bento, dev=deployment.dev)
        before = deployment.latest.config["services"]
        config = deployment_config(fields, bento.manifest, self._instance_types(), before)
        labels = _checked_labels(fields) if fields.has("labels") else None
        kept = deployment.labels if labels is None else labels
        canary = await self._canary(request, fields, config, kept)
        async with self._changes.one(request, lambda: self._state(request)):
            deployment, begins = await self._deployments.run(
                self._deployments.update,
                deployment.id,
                self._draft(bento, config, kept, caller(request)),
                labels,
                host=request.url.host or "",
                canary=canary,
            )
        if not begins:
            await self._poke(deployment)
            return self._answer(request, deployment)
        return await self._rolled_out(request, deployment)

    async def roll_out_again(self, request: web.Request) -> web.Response:
        """The same bento and config as a new revision: replicas are replaced one by one."""
        deployment = await self._named(request)
        await self._controller.admit(organization(request).name)
        latest = deployment.latest
        deployment, _ = await self._deployments.run(
            self._deployments.update,
            deployment.id,
            self._draft(latest.bento, latest.config, deployment.labels, caller(request)),
            None,
            force=True,
            host=request.url.host or "",
        )
        return await self._rolled_out(request, deployment)

    async def _canary(
        self,
        request: web.Request,
        fields: Fields,
        main: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]],
    ) -> CanaryDraft:
        """The versions that are asked for beside `main`, whose config that is."""
        asked = canary_fields(fields)
        if asked is None:
            return NO_CANARY
        drafts = {}
        for name, version in asked.versions.items():
            bento = await self._source.bento(organization(request), version.text("bento"))
            _check_packed(bento, dev=False)
            config = deployment_config(version, bento.manifest, self._instance_types())
            config |= {"access_authorization": main["access_authorization"]}
            drafts[name] = self._draft(bento, config, labels, caller(request))
        return CanaryDraft(drafts, asked.weights, asked.route_type, asked.route_by)

    async def _poke(self, deployment: Deployment) -> None:
        """Have the controller look at it, and at all versions of its canary."""
        self._controller.poke(deployment.id)
        for version in await self._deployments.run(self._deployments.versions, deployment.id):
            self._controller.poke(version)

    def _draft(
        self,
        bento: Artifact,
        config: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]],
        user: User,
    ) -> RevisionDraft:
        return revision_draft(self._controller, bento, config, labels, user)

    async def terminate(self, request: web.Request) -> web.Response:
        """`POST …/{name}/terminate`: stop its replicas and keep it. Answers the deployment."""
        deployment = await self._named(request)
        deployment = await self._deployments.run(self._deployments.terminate, deployment.id)
        events.info("%s: it is terminated, and its replicas are stopped", deployment.name)
        self._watchers.forget(deployment.id)
        await self._poke(deployment)
        return self._answer(request, deployment)

    async def delete(self, request: web.Request) -> web.Response:
        """Answers the deployment, which the client insists on."""
        deployment = await self._named(request)
        deployment = await self._deployments.run(self._deployments.delete, deployment.id)
        events.info("%s: it is deleted, and its replicas are stopped", deployment.name)
        self._watchers.forget(deployment.id)
        await self._poke(deployment)
        return self._answer(request, deployment)

    async def get(self, request: web.Request) -> web.Response:
        """The first question after a roll-out began is held until it ended: the client asks
        every 10 s only, and a warm start takes less than one."""
        deployment = await self._named(request)
        if access(request).is_replicas:  # which asks where to call, and waits for no roll-out
            found = self._view(self._origin(request), deployment)
            return web.json_response(views.without_settings(found))
        if deployment.dev:  # its client asks between two saves, and sends nothing meanwhile
            return self._answer(request, deployment)
        stock = CLIENT_HEADER in request.headers
        builds = await self._watchers.hold(deployment.id, stock=stock)
        return self._answer(request, await self._named(request), BUILDING if builds else "")

    async def list_all(self, request: web.Request) -> web.Response:
        """Newest first; `q` has labels and words, `search` a word: parts of names and bentos' tags.
        `is:dev`: code spaces only, with their bentos' manifests, which the client compares."""
        start = query_start(request)
        wanted = query_filter(request)
        found, total = await self._deployments.run(
            self._deployments.page,
            organization(request).id,
            wanted,
            start,
            COUNT_UNSAID if (count := query_count(request)) is None else count,
        )
        origin = self._origin(request)
        items = [self._view(origin, deployment) for deployment in found]
        if not wanted.dev:
            items = [views.without_manifest(item) for item in items]
        return web.json_response(views.listed(items, start, total))

    async def _rolled_out(self, request: web.Request, deployment: Deployment) -> web.Response:
        """The answer to what began a roll-out; it does not wait for it."""
        latest = deployment.latest
        events.info(
            "%s: revision %d is deployed, with bento %s",
            deployment.name,
            latest.number,
            latest.bento.tag,
        )
        self._watchers.begun(deployment.id)
        await self._poke(deployment)
        return self._answer(request, deployment)

    def _answer(
        self, request: web.Request, deployment: Deployment, status: str = ""
    ) -> web.Response:
        return web.json_response(self._view(self._origin(request), deployment, status))

    def _view(self, origin: str, deployment: Deployment, status: str = "") -> views.Json:
        shown = status or self._watchers.status(deployment)
        return views.deployment(replace(deployment, status=shown), origin, self._settings.cluster)

    def _origin(self, request: web.Request) -> str:
        return advertised_origin(request, self._settings)

    async def _state(self, request: web.Request) -> dict[str, Any]:
        return changeable(await self._named(request))

    async def _named(self, request: web.Request) -> Deployment:
        self._check_cluster(request)
        return await named_deployment(self._deployments, request)

    def _instance_types(self) -> list[str]:
        return [item["display_name"] for item in self._controller.instance_types()]

    def _check_cluster(self, request: web.Request) -> None:
        check_cluster(request, self._settings.cluster)


def revision_draft(
    controller: ControllerApi,
    bento: Artifact,
    config: Mapping[str, Any],
    labels: Sequence[Mapping[str, str]],
    user: User,
    files: str = "",
) -> RevisionDraft:
    """What `user` asks for; `files` are what a code space runs. Raises Invalid where a
    replica could never run."""
    return RevisionDraft(
        bento.id,
        config,
        least=controller.least(bento.manifest, config, labels),
        notes=controller.notes(bento.manifest, config),
        by=user.name,
        files=files,
    )


async def named_deployment(deployments: Deployments, request: web.Request) -> Deployment:
    """The deployment that the request's path names. Raises NotFound."""
    name = request.match_info["name"]
    return await deployments.run(deployments.find, organization(request).id, name)


def changeable(deployment: Deployment) -> dict[str, Any]:
    """What users change of a deployment; what it does meanwhile is not in it."""
    latest = deployment.latest
    return {
        "revision": latest.uid,
        "paused": latest.paused,
        "wanted": deployment.wanted,
        "labels": [dict(label) for label in deployment.labels],
        "canary": dict(deployment.canary),
        "versions": [version.latest.uid for version in deployment.versions],
    }


def advertised_origin(request: web.Request, settings: ApiSettings) -> str:
    """Where callers reach deployments, but for the port: as told, else where this caller did us."""
    return _origin(settings, request.url.host or "")


def public_url(deployment: Deployment, settings: ApiSettings) -> str:
    """What a deployment itself is told of where its callers reach it: what `urls` said to whoever
    asked for its latest revision."""
    return views.deployment_url(deployment, _origin(settings, deployment.host))


def _origin(settings: ApiSettings, reached: str) -> str:
    if settings.deployments_url:
        return settings.deployments_url
    advertised = settings.advertise_host
    return views.origin_of(
        settings.scheme, (reached or "localhost") if is_everywhere(advertised) else advertised
    )


def _checked_labels(fields: Fields) -> list[dict[str, str]]:
    labels = fields.pairs("labels", "key")
    check_annotations(labels, fields.at("labels"))
    check_label_settings(labels, fields.at("labels"))
    return labels


def _check_packed(bento: Artifact, *, dev: bool) -> None:
    """Raises Invalid for a bento that is not packed, and of a code space for one that is."""
    if bento.dev and not dev:
        raise Invalid(
            f"bento: '{bento.tag}' was made by 'bentoml code' and has no files of its own; push "
            "one that is built: bentoml build --push"
        )
    if dev and not bento.dev:
        raise Invalid(
            f"bento: '{bento.tag}' is packed, and a code space runs what 'bentoml code' sends it; "
            "deploy it under a name of its own: bentoml deploy"
        )
