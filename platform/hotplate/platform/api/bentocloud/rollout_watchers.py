"""The answers to clients that wait for a roll-out, so that their terminals show why they wait.

The stock client prints nothing of a deployment but its status. While that is `image-building` it
also follows the builder's log, until the first answer that says anything else, and whatever it was
answered it asks again only 10 s later. So its questions are held until the roll-out is over, as
most are within seconds; the first one until an environment is built, at most. What takes longer,
and a failure, the client learns from the log first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import UNSEEN, ControllerApi
from hotplate.platform.store.records import Deployment

BUILDING = "image-building"
ASKS_WITHIN_S = 2.0
"""A client that waits asks as soon as its call is answered; another one has to start first."""
FOLLOWS_WITHIN_S = 15.0
"""One that was told to follow the log does so; whoever does not by then has left."""
LOOK_S = 0.2
LAST_WORDS_S = 5.0
"""How long an answer that ends the client's reading waits until all of the log is read."""


class RolloutWatchers:
    """Holds a client's first question, and chooses the status that makes it show the log."""

    def __init__(self, controller: ControllerApi, settings: ApiSettings) -> None:
        self._controller = controller
        self._settings = settings
        self._started_at: dict[int, float] = {}
        """Roll-outs that nobody has asked about yet, and when they began, loop seconds."""
        self._reported_at: dict[int, float] = {}
        """Those of which somebody was told to follow the log, and when."""
        self._recent: dict[int, None] = {}
        """Deployments by when they were asked for last, the latest at the end."""
        self._following: Counter[int] = Counter()
        self._departed = asyncio.Event()
        """Set whenever somebody has stopped following."""

    def begun(self, deployment_id: int) -> None:
        """A roll-out has been asked for, and was acknowledged."""
        self._started_at[deployment_id] = _now()
        self._reported_at.pop(deployment_id, None)

    def forget(self, deployment_id: int) -> None:
        """The deployment is terminated or deleted: nobody waits for its roll-out."""
        for kept in (self._started_at, self._reported_at, self._recent):
            kept.pop(deployment_id, None)

    async def hold(self, deployment_id: int, *, stock: bool) -> bool:
        """Return when the question about a deployment may be answered, and whether its answer is
        to be `image-building`, whatever has become of the deployment: to the `stock` client."""
        self._recent.pop(deployment_id, None)
        self._recent[deployment_id] = None
        started_at = self._started_at.pop(deployment_id, None)
        if started_at is None:
            if stock and deployment_id in self._reported_at:
                await self._outcome_or_reason(deployment_id)
            await self._final_status(deployment_id)
            return False
        if not stock or _now() - started_at > ASKS_WITHIN_S:
            await self._controller.outcome(deployment_id, self._settings.outcome_wait_s)
            return False
        await self._outcome_or_reason(deployment_id, until_built=True)
        rollout = self._controller.rollout(deployment_id)
        if rollout.over and not rollout.failed:
            return False
        self._reported_at[deployment_id] = _now()
        return True

    def status(self, deployment: Deployment) -> str:
        """The status that the client gets of a deployment as the store has it."""
        if deployment.status != "deploying":
            return deployment.status
        rollout = self._controller.rollout(deployment.id)
        builds = bool(rollout.build_logs) or self._is_followed(deployment.id)
        return BUILDING if builds and not rollout.over else deployment.status

    def latest_first(self, deployments: list[Deployment]) -> list[Deployment]:
        """By when they were asked for: the client looks for a builder by its bento, right after a
        question about its deployment."""
        order = {key: number for number, key in enumerate(self._recent)}
        return sorted(deployments, key=lambda each: order.get(each.id, -1), reverse=True)

    @contextmanager
    def follows(self, deployment_id: int) -> Iterator[None]:
        """Somebody reads the builder's log."""
        self._following[deployment_id] += 1
        try:
            yield
        finally:
            self._following -= Counter({deployment_id: 1})
            self._departed.set()

    def _is_followed(self, deployment_id: int) -> bool:
        reported_at = self._reported_at.get(deployment_id)
        if reported_at is None:
            return False
        return self._following[deployment_id] > 0 or _now() - reported_at < FOLLOWS_WITHIN_S

    async def _outcome_or_reason(self, deployment_id: int, *, until_built: bool = False) -> None:
        """Until the roll-out is over, or something has held it up for a while that the user should
        know of; with `until_built` until a build begins, at most."""
        began_at, settings = _now(), self._settings
        while (left_s := began_at + settings.outcome_wait_s - _now()) > 0:
            rollout = self._controller.rollout(deployment_id)
            is_late = _now() - began_at >= settings.held_up_s
            if rollout.over or (until_built and rollout.build_logs):
                return
            if is_late and (rollout.held_up or rollout is UNSEEN):
                return
            await self._controller.outcome(deployment_id, min(LOOK_S, left_s))

    async def _final_status(self, deployment_id: int) -> None:
        """After a roll-out, return when no client follows its log."""
        if not self._controller.rollout(deployment_id).over:
            return
        self._reported_at.pop(deployment_id, None)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while self._following[deployment_id] > 0:
                    self._departed.clear()
                    await self._departed.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
