"""The WebSocket over which the client follows a log: of a roll-out, or of a replica.

The client knows pods: `pods` shows a deployment's replicas as such, and a builder that stands for
the roll-out, whose log `rollout_text` writes from the deployment's status. Replicas' logs are the
engine's to follow, those of `several_replicas` at a time; `sockets` speaks the client's protocol on
the socket.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import WSMsgType, web

from hotplate.deploy.errors import DeployError
from hotplate.platform.api.bentocloud.logs.pods import BUILDER
from hotplate.platform.api.bentocloud.logs.rollout_text import RolloutText
from hotplate.platform.api.bentocloud.logs.several_replicas import FollowedLogs
from hotplate.platform.api.bentocloud.logs.sockets import PARTING_S, message, opened, parted
from hotplate.platform.api.bentocloud.rollout_watchers import RolloutWatchers
from hotplate.platform.api.web.requests import COUNT_MAX, organization
from hotplate.platform.controller.interface import UNSEEN, ControllerApi, Rollout
from hotplate.platform.errors import Invalid, NotFound, PlatformError
from hotplate.platform.spec.bento_manifest import service_names
from hotplate.platform.spec.fields import Fields
from hotplate.platform.store.deployments import Deployments
from hotplate.platform.store.records import DesiredState

LOOK_S = 0.3
"""Between two looks at a log."""
ASK_S = 30.0
"""Within which the client says what it wants."""
FOLLOWED_MAX = 64
"""Logs that are followed at a time: each is read again and again."""
ITEM_CHARS = 32 << 10
USUAL_LINES = 50


@dataclass(frozen=True)
class LogSource:
    """One log that a client follows."""

    deployment_id: int
    replica: str
    """`builder` = not a replica, but its roll-out."""
    lines: int
    """How many of those that are there already."""
    is_service: bool = False
    """Of a code space: not a replica, but all of a service's, one after another."""


class Tail:
    """`GET /ws/v1/clusters/{cluster}/tail`: sends a log as it grows."""

    def __init__(
        self, deployments: Deployments, controller: ControllerApi, watchers: RolloutWatchers
    ) -> None:
        self._deployments = deployments
        self._controller = controller
        self._watchers = watchers
        self._open = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/ws/v1/clusters/{cluster}/tail", self.tail)]

    async def tail(self, request: web.Request) -> web.WebSocketResponse:
        """Send what the log has and what comes, until it ends or the client leaves."""
        socket = await opened(request)
        self._open += 1
        try:
            if self._open > FOLLOWED_MAX:
                raise Invalid(f"{FOLLOWED_MAX} logs are followed already; try again later")
            source = await self._asked(request, socket)
            if source.replica == BUILDER:
                with self._watchers.follows(source.deployment_id):
                    await self._send(socket, self._rollout(source))
            elif source.is_service:
                await self._send(socket, self._service(source))
            else:
                await self._send(socket, self._replica(source))
        except PlatformError as error:
            await socket.send_json(message("error", str(error)))
            await parted(socket)
        except ConnectionError:
            pass  # the client has left
        finally:
            self._open -= 1
        return socket

    async def _asked(self, request: web.Request, socket: web.WebSocketResponse) -> LogSource:
        """Raises Invalid and NotFound."""
        name, _, replica = request.query.get("pod_name", "").partition("/")
        try:
            async with asyncio.timeout(ASK_S):
                asked = Fields(json.loads(await socket.receive_str()))
        except (TimeoutError, TypeError, ValueError) as error:
            raise Invalid(f"the first message must say which log: {error}") from error
        fields = asked.fields("payload")
        lines = fields.number("tail_lines", USUAL_LINES) or USUAL_LINES
        tenant = organization(request).id
        deployment = await self._deployments.run(self._deployments.find, tenant, name)
        replicas = self._controller.live(deployment.id)["replicas"]
        service = deployment.dev and replica in service_names(deployment.latest.bento.manifest)
        if not service and replica != BUILDER and replica not in (one["id"] for one in replicas):
            raise NotFound(f"pod_name: deployment {name!r:.80} has no replica {replica!r:.80} now")
        return LogSource(deployment.id, replica, min(lines, COUNT_MAX), is_service=service)

    async def _send(self, socket: web.WebSocketResponse, texts: AsyncGenerator[str, None]) -> None:
        """Text by text; what the client sends meanwhile are heartbeats."""
        leaving = asyncio.create_task(_disconnected(socket))
        sending = asyncio.create_task(_sent(socket, texts))
        try:
            await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not leaving.done():
                sending.result()
                await asyncio.wait((leaving,), timeout=PARTING_S)
        finally:
            for task in (leaving, sending):
                task.cancel()
            await asyncio.gather(leaving, sending, return_exceptions=True)

    async def _rollout(self, source: LogSource) -> AsyncGenerator[str, None]:
        text = RolloutText()
        try:
            while True:
                rollout = self._controller.rollout(source.deployment_id)
                yield await asyncio.to_thread(text.next, rollout)
                if rollout.over or await self._is_gone(source.deployment_id, rollout):
                    return
                await asyncio.sleep(LOOK_S)
        finally:
            text.close()

    async def _is_gone(self, deployment_id: int, rollout: Rollout) -> bool:
        if rollout is not UNSEEN:
            return False
        return await self._deployments.run(self._deployments.get, deployment_id) is None

    async def _service(self, source: LogSource) -> AsyncGenerator[str, None]:
        """What holds the code space up, its builds, and its replicas, until it ends."""
        text, logs = RolloutText(), FollowedLogs(partial(self._log, source))
        try:
            while await self._is_wanted(source.deployment_id):
                rollout = self._controller.rollout(source.deployment_id)
                yield await asyncio.to_thread(text.next, replace(rollout, failed=False))
                replicas = self._controller.live(source.deployment_id)["replicas"]
                logs.follow(one["id"] for one in replicas if one["service"] == source.replica)
                async for piece in logs.come_within(LOOK_S):
                    yield piece
        finally:
            text.close()
            await logs.close()

    def _log(self, source: LogSource, replica: str, *, first: bool) -> AsyncGenerator[str, None]:
        """Of those that come later, all is new."""
        lines = source.lines if first else None
        return self._controller.follow_log(source.deployment_id, replica, lines)

    async def _is_wanted(self, deployment_id: int) -> bool:
        deployment = await self._deployments.run(self._deployments.get, deployment_id)
        return deployment is not None and deployment.wanted is DesiredState.RUNNING

    async def _replica(self, source: LogSource) -> AsyncGenerator[str, None]:
        """Until it is gone, to its last line."""
        try:
            async with aclosing(self._log(source, source.replica, first=True)) as log:
                async for piece in log:
                    yield piece
        except DeployError as error:  # it has ended since it was asked for
            raise NotFound(f"pod_name: {error}") from error


async def _sent(socket: web.WebSocketResponse, texts: AsyncGenerator[str, None]) -> None:
    async with aclosing(texts):
        async for text in texts:
            # The client decodes each item alone: none may end within a character.
            items = [text[at : at + ITEM_CHARS] for at in range(0, len(text), ITEM_CHARS)]
            if items:
                coded = [base64.b64encode(item.encode(errors="replace")).decode() for item in items]
                payload = {"items": coded, "type": "append"}
                await socket.send_json(message("success", payload=payload))
    await socket.send_json(message("success", "EOF"))


async def _disconnected(socket: web.WebSocketResponse) -> None:
    with suppress(RuntimeError):
        while (await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            pass
