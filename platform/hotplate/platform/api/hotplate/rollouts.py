"""Our own routes about roll-outs: how the last one stands, what there was before, and what may be
done about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aiohttp import web

from hotplate.platform.api.bentocloud.deployment_source import DeploymentSource
from hotplate.platform.api.bentocloud.deployments import (
    changeable,
    named_deployment,
    revision_draft,
)
from hotplate.platform.api.bentocloud.rollout_watchers import RolloutWatchers
from hotplate.platform.api.web.etags import ConditionalChanges, tagged
from hotplate.platform.api.web.requests import (
    COUNT_MAX,
    body,
    caller,
    organization,
    query_number,
    query_start,
)
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.controller.planning.messages import failed
from hotplate.platform.controller.planning.turnovers import phase_of, strategy_of
from hotplate.platform.errors import Conflict, Invalid, NotFound
from hotplate.platform.log_format import events
from hotplate.platform.spec.fields import Fields
from hotplate.platform.store.canaries import NO_CANARY, CanaryDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import (
    Deployment,
    DesiredState,
    Revision,
    RolloutOutcome,
)


class RolloutRoutes:
    """The roll-outs of deployments of the caller's organization."""

    def __init__(
        self,
        store: Store,
        source: DeploymentSource,
        controller: ControllerApi,
        watchers: RolloutWatchers,
    ) -> None:
        self._store = store
        self._source = source
        self._controller = controller
        self._watchers = watchers
        self._changes = ConditionalChanges()
        self._actions: dict[str, Callable[[web.Request, Deployment, Fields], Awaitable[None]]] = {
            "undo": self._undo,
            "restart": self._restart,
            "pause": self._pause,
            "resume": self._resume,
            "abort": self._abort,
            "promote": self._promote,
        }

    def routes(self) -> list[web.RouteDef]:
        one = "/api/v1/hotplate/deployments/{name}"
        return [
            web.get(one + "/rollout", self.get),
            web.post(one + "/rollout", self.act),
            web.get(one + "/revisions", self.revisions),
        ]

    async def get(self, request: web.Request) -> web.Response:
        """`GET …/rollout`: how the last roll-out stands, with the figures of each version."""
        return await self._answer(await named_deployment(self._store.deployments, request))

    async def act(self, request: web.Request) -> web.Response:
        """`POST …/rollout`: `{"action": …}`, with `to` or `version` where that needs one. Answers
        how the roll-out stands. Raises Conflict where the action makes no sense now."""
        fields = await body(request)
        action = fields.choice("action", self._actions)
        if action is None:
            raise Invalid(f"action: there is none; it is one of {', '.join(self._actions)}")
        async with self._changes.one(request, lambda: self._state(request)):
            deployment = await named_deployment(self._store.deployments, request)
            await self._take(action, request, deployment, fields)
        versions = await self._store.run(self._store.deployments.versions, deployment.id)
        for each in (deployment.id, *versions):
            self._controller.poke(each)
        return await self._answer(await named_deployment(self._store.deployments, request))

    async def _state(self, request: web.Request) -> dict[str, Any]:
        return changeable(await named_deployment(self._store.deployments, request))

    async def _take(
        self, action: str, request: web.Request, deployment: Deployment, fields: Fields
    ) -> None:
        if deployment.wanted is not DesiredState.RUNNING:
            raise Conflict(
                f"deployment {deployment.name!r} is terminated; start it with: "
                f"bentoml deployment update {deployment.name}"
            )
        await self._actions[action](request, deployment, fields)

    async def revisions(self, request: web.Request) -> web.Response:
        """`GET …/revisions?start=0&count=100`: the revisions that are kept, newest first."""
        deployment = await named_deployment(self._store.deployments, request)
        start = query_start(request)
        count = min(query_number(request, "count", 100), COUNT_MAX)
        found, total = await self._store.run(
            self._store.revisions.page, deployment.id, start, count
        )
        items = [_revision_json(revision, deployment) for revision in found]
        return web.json_response({"items": items, "total": total})

    async def _answer(self, deployment: Deployment) -> web.Response:
        found = self._controller.live(deployment.id).get("rollout")
        if found is None or found["to"] != deployment.latest.number:
            found = _unseen(deployment, [] if found is None else found["versions"])
        return tagged(found, changeable(deployment))

    async def _undo(self, request: web.Request, deployment: Deployment, fields: Fields) -> None:
        number = fields.number("to", low=1)
        before = await self._to(deployment, number)
        await self._roll_out(request, deployment, before, "rollout.undo")

    async def _to(self, deployment: Deployment, number: int | None) -> Revision:
        """The revision to return to: the one of that number, or the last good one."""
        revisions = self._store.revisions
        latest = deployment.latest
        if number is None:
            found = await self._store.run(revisions.last_ready, deployment.id, latest.number)
            if found is None:
                raise Conflict(
                    f"deployment {deployment.name!r} has no revision before {latest.number} that "
                    "became ready and is kept (revisions_kept), so there is nothing to return to"
                )
            return found
        try:
            found = await self._store.run(revisions.get, deployment.id, number)
        except NotFound:
            raise NotFound(
                f"to: deployment {deployment.name!r} has no revision {number}, or keeps it no "
                f"longer (revisions_kept); 'hotplate rollout history {deployment.name}' lists them"
            ) from None
        if found.number == latest.number:
            raise Conflict(
                f"revision {number} is the latest one of deployment {deployment.name!r}; to start "
                f"its replicas anew: hotplate rollout restart {deployment.name}"
            )
        return found

    async def _restart(self, request: web.Request, deployment: Deployment, fields: Fields) -> None:
        await self._roll_out(request, deployment, deployment.latest, "rollout.restart")

    async def _roll_out(
        self,
        request: web.Request,
        deployment: Deployment,
        like: Revision,
        action: str,
        canary: CanaryDraft | None = None,
    ) -> None:
        """A new revision with the bento and config of another one; a canary None stays."""
        await self._controller.admit(organization(request).name)
        bento = await self._source.bento(organization(request), like.bento.tag)
        draft = revision_draft(
            self._controller, bento, like.config, deployment.labels, caller(request)
        )
        if deployment.dev:
            draft = replace(draft, files=like.bento.files)
        after, _ = await self._store.run(
            self._store.deployments.update,
            deployment.id,
            replace(draft, action=action),
            None,
            force=True,
            canary=canary,
        )
        events.info(
            "%s: revision %d is deployed as revision %d was, with bento %s",
            after.name,
            after.latest.number,
            like.number,
            bento.tag,
        )
        self._watchers.begun(deployment.id)

    async def _pause(self, request: web.Request, deployment: Deployment, fields: Fields) -> None:
        await self._set_paused(request, deployment, paused=True)

    async def _resume(self, request: web.Request, deployment: Deployment, fields: Fields) -> None:
        await self._set_paused(request, deployment, paused=False)

    async def _set_paused(
        self, request: web.Request, deployment: Deployment, *, paused: bool
    ) -> None:
        latest = _under_way(deployment)
        changed = await self._store.run(
            self._store.revisions.pause, latest.id, caller(request).name, paused=paused
        )
        if not changed:
            state = "is paused already" if paused else "is not paused"
            raise Conflict(f"the roll-out of revision {latest.number} {state}")

    async def _abort(self, request: web.Request, deployment: Deployment, fields: Fields) -> None:
        latest = _under_way(deployment)
        if deployment.serving is None:
            raise Conflict(
                f"deployment {deployment.name!r} has no earlier revision that serves, so its first "
                f"roll-out cannot be aborted; terminate it with: bentoml deployment terminate "
                f"{deployment.name}"
            )
        reason = f"{caller(request).name} aborted its roll-out"
        ended = await self._store.run(
            self._store.revisions.conclude_rollout,
            latest.id,
            RolloutOutcome.FAILED,
            reason,
            failed(deployment, reason),
            under_way=True,
        )
        if not ended:
            raise Conflict(f"the roll-out of revision {latest.number} has just ended")

    async def _promote(self, request: web.Request, deployment: Deployment, fields: Fields) -> None:
        asked = fields.text("version")
        version = next((each for each in deployment.versions if each.version == asked), None)
        if version is None:
            ids = ", ".join(each.version for each in deployment.versions)
            there = f"its versions are {ids}" if ids else "it has no canary"
            raise Conflict(
                f"version {asked!r:.80} of deployment {deployment.name!r} cannot be promoted: "
                f"{there}"
            )
        shown = self._controller.live(deployment.id).get("rollout", {}).get("versions", ())
        ready = any(each["version"] == asked and each["ready"] for each in shown)
        outcome = version.latest.outcome
        if outcome is RolloutOutcome.FAILED or (outcome is RolloutOutcome.DEPLOYING and not ready):
            failed = outcome is RolloutOutcome.FAILED
            state = f"could not start ({version.latest.reason})" if failed else "is not ready yet"
            raise Conflict(
                f"version {asked!r} of deployment {deployment.name!r} {state}; promote it once "
                f"'hotplate rollout {deployment.name}' shows that it is"
            )
        await self._roll_out(request, deployment, version.latest, "rollout.promote", NO_CANARY)


def _under_way(deployment: Deployment) -> Revision:
    """The revision that is being rolled out. Raises Conflict."""
    latest = deployment.latest
    if latest.outcome is not RolloutOutcome.DEPLOYING:
        raise Conflict(
            f"no roll-out of deployment {deployment.name!r} is under way: that of revision "
            f"{latest.number} has ended ({latest.outcome})"
        )
    return latest


def _unseen(deployment: Deployment, versions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A roll-out that the controller has not begun; `versions` are those of before."""
    latest, serving = deployment.latest, deployment.serving
    return {
        "strategy": strategy_of(latest).value,
        "phase": phase_of(deployment, None, ()).value,
        "from": None if serving is None or serving == latest else serving.number,
        "to": latest.number,
        "reason": deployment.reason,
        "since": latest.created_at.isoformat(),
        "versions": versions,
    }


def _revision_json(revision: Revision, deployment: Deployment) -> dict[str, Any]:
    serving, outcome = deployment.serving, revision.outcome.value
    replaced = revision.number != deployment.latest.number
    if replaced and revision.outcome is RolloutOutcome.DEPLOYING:
        outcome = "superseded"
    return {
        "number": revision.number,
        "created_at": revision.created_at.isoformat(),
        "by": revision.by or deployment.creator.name,
        "bento": revision.bento.tag,
        "config": revision.config,
        "outcome": outcome,
        "reason": revision.reason,
        "serving": serving is not None and serving.id == revision.id,
    }
