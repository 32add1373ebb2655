"""One task on its way through a gateway: it waits for a slot like any request, and runs.

    connect ──► start (recorded by the control plane) ──► send ──► response ──► end (recorded)

The connection is made first, so that a task whose replica cannot be reached has not started.
Nothing of a task is sent before its start was recorded, so that after any crash it is known of
every task whether some of it may have run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.protocol.headers import version_line
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.replicas.call import Destination, Waiter
from hotplate.serving.gateway.replicas.fence import ANOTHER
from hotplate.serving.gateway.tasks.control_plane_client import (
    ControlPlaneAway,
    ControlPlaneClient,
    NotWanted,
    TaskOffer,
)
from hotplate.serving.gateway.tasks.deliveries import Deliveries
from hotplate.serving.gateway.tasks.frame_heads import with_line
from hotplate.serving.gateway.tasks.replica_call import ReplicaCall, ReplicaGone
from hotplate.serving.gateway.tasks.result import TaskResult
from hotplate.serving.gateway.telemetry.version_answers import BROKEN, kind_of

log = logging.getLogger(__name__)

TRIES = 3
"""Replicas that a task that may run twice may lose."""


class NotRun(Exception):
    """A replica went away before the task's handler began, or the task may run twice."""


class TaskRun(Waiter):
    """A task that waits for a slot or runs. The scheduler has it until it has ended. Its duration
    says nothing about its replica, and its body stays with the control plane until it has a
    slot."""

    def __init__(
        self,
        offer: TaskOffer,
        client: ControlPlaneClient,
        deliveries: Deliveries,
        *,
        displaced: Callable[[TaskRun], None],
        ended: Callable[[TaskRun], None],
    ) -> None:
        """`displaced` is called when it has lost its place in a queue and needs another one,
        `ended` when nothing remains to be done for it here."""
        super().__init__(is_task=True)
        self.id = offer.id
        self.route = offer.route
        self.lost = offer.lost
        """Whether another gateway had started it and is gone."""
        self.organization = offer.organization
        self.priority = offer.priority
        self.version = offer.version
        """The version to which it was submitted; empty = `main`."""
        self.waits_at = ""
        """The route among whose tasks it waits outside; empty = it does not."""
        self.dispatcher: Dispatcher | None = None
        """The dispatcher with which it waits or runs."""
        self._client = client
        self._deliveries = deliveries
        self._displaced = displaced
        self._ended = ended
        self._tries = 0
        self._running: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    # For the route

    def enter(self, dispatcher: Dispatcher) -> bool:
        """Has it wait for a slot of the route; False = the route takes none, or none now."""
        self.dispatcher = dispatcher
        if dispatcher.submit_task(self, self.organization, self.priority):
            return True
        self.dispatcher = None
        return False

    def granted(self, replica: Destination, now: float) -> None:
        self._running = asyncio.create_task(self._run(replica))
        self._running.add_done_callback(self._ran)

    def resubmit(self, due_at: float) -> None:
        """Another gateway owns its route now. A task has no deadline."""
        self.dispatcher = None
        self._displaced(self)

    def fail(self, error: GatewayError) -> None:
        """It has lost its place in the queue, and waits outside until it can enter again."""
        if self.dispatcher is not None:
            self.dispatcher.withdraw(self)
            self.dispatcher = None
        self._displaced(self)

    def abort(self) -> None:
        """Ends it, because this gateway ends."""
        if self._running is not None:
            self._running.cancel()

    # Inside

    def _ran(self, running: asyncio.Task[None]) -> None:
        if self._running is running:
            self._running = None
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error  # a bug; the loop logs it

    async def _run(self, destination: Destination) -> None:
        dispatcher = self.dispatcher
        assert dispatcher is not None, "what has a slot got it from a dispatcher"
        try:
            replica = await ReplicaCall.to(
                destination.address, dispatcher.limits.connect_s, worker=destination.worker
            )
        except OSError as error:
            self._running = None
            destination.refused(error)
            dispatcher.retry(self)
            return
        try:
            result = await self._execute(dispatcher, replica, destination)
        except NotWanted:
            dispatcher.withdraw(self)
            self._ended(self)
        except (ControlPlaneAway, NotRun) as error:
            log.info("task %s: %s; it will be sent again", self.id, error)
            dispatcher.withdraw(self)
            self._displaced(self)
        else:
            dispatcher.release(self, asyncio.get_running_loop().time())
            self._ended(self)
            self._deliveries.deliver(result)
        finally:
            replica.close()

    async def _execute(
        self, dispatcher: Dispatcher, replica: ReplicaCall, destination: Destination
    ) -> TaskResult:
        """Runs the task. Raises NotWanted, ControlPlaneAway and NotRun."""
        result = self._deliveries.result(self.id)
        limit, problem, status = dispatcher.route.body_limit_bytes, "", 0
        version = version_line(dispatcher.route.version)
        fence = destination.fence.line(needs_slot=True, may_return=False)

        async def take(head: ResponseHead, piece: bytes) -> None:
            # Whatever becomes of its answer, the slot is the handler's until the answer's end.
            nonlocal problem, status
            if version and not status:  # its caller may ask when other versions are there
                head.lines.append(version)
            status = head.status
            if result.size_bytes + len(piece) > limit:
                problem = f"its response has more than {limit} bytes (body_limit_bytes)"
            if not problem:
                try:
                    await result.take(head, piece)
                except OSError as error:
                    problem = f"its response cannot be stored on the gateway's disk ({error})"

        try:
            async with self._client.start(self.id, self.route) as source:
                await replica.ask(with_line(source.head, fence), source.body, take)
        except ReplicaGone as error:
            problem = f"the replica at {destination.public_address} {error}"
            if replica.returned:
                result.drop()
                destination.failed(ANOTHER)
                raise NotRun(problem) from error
            self.count_answer(BROKEN)
            self._tries += 1
            if not replica.begun or (dispatcher.route.may_run_twice and self._tries < TRIES):
                result.drop()
                raise NotRun(problem) from error
        else:
            self.count_answer(kind_of(status))
        if not problem:
            return result
        result.drop()
        return self._deliveries.failure(self.id, self.route, problem)
