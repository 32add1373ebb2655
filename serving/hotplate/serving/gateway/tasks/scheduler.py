"""A gateway's kept tasks: those that wait or run here.

    control plane ──offer──► scheduler ──► queue of the route ──► execution ──► deliveries
                                 ▲               │
                                 └── outside ◄───┘  no place there, or not served now

The control plane keeps the tasks, and says on a WebSocket which of them wait
(`control_plane_client.py`). Each enters the queue of its deployment like any request; one that
finds no place there, or whose deployment is not served now, waits outside and is tried again. A
task with a slot runs (`execution.py`), and its result is delivered to the control plane
(`deliveries.py`). Callers' calls of task routes go on to the control plane
(`control_plane_exchange.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hotplate.serving.gateway.admission.task_routes import task_call
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.routes import TASKS
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.tasks.control_plane_client import AWAY, ControlPlaneClient, TaskOffer
from hotplate.serving.gateway.tasks.control_plane_exchange import TaskExchange
from hotplate.serving.gateway.tasks.deliveries import Deliveries
from hotplate.serving.gateway.tasks.execution import TaskRun

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 2.0)
"""First and longest pause before the control plane is tried again."""
OUTSIDE_S = 0.25
"""How often tasks that wait outside try to enter a queue."""


class TaskScheduler:
    """Schedules a gateway's tasks, in one event loop; `run` keeps the connection until cancelled,
    `close` ends everything."""

    def __init__(
        self,
        servers: Callable[[str], RouteServer | None],
        client: ControlPlaneClient,
        deliveries: Deliveries,
    ) -> None:
        """`servers` finds the route of a name."""
        self._servers = servers
        self._client = client
        self._deliveries = deliveries
        self._runs: dict[str, TaskRun] = {}
        self._outside: dict[str, dict[str, TaskRun]] = {}
        """Tasks that wait outside, by route, and then by id in the order in which they came."""
        self._entering: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Receives tasks, and delivers the results that earlier gateways have left."""
        await self._deliveries.load()
        pause, longest = BACKOFF_S
        while True:
            waiting = [run.id for run in self._runs.values() if not run.running]
            try:
                await self._client.listen(waiting, self._offered, self._dropped)
                pause = BACKOFF_S[0]
            except AWAY as error:
                log.info("the connection for tasks to the control plane is down (%s)", error)
            await asyncio.sleep(pause)
            pause = min(longest, pause * 2)

    async def close(self) -> None:
        """Ends what still runs; results that were not delivered are stored on the disk."""
        if self._entering is not None:
            self._entering.cancel()
        for run in list(self._runs.values()):
            run.abort()
        await self._deliveries.close()
        await self._client.close()

    def running(self) -> dict[str, dict[str, int]]:
        """How many tasks run, by route and by replica, for the report to the control plane."""
        found: dict[str, dict[str, int]] = {}
        for run in self._runs.values():
            replica = None if run.ticket is None else run.ticket.replica
            if run.running and run.dispatcher is not None and replica is not None:
                counts = found.setdefault(run.dispatcher.route.name.removesuffix(TASKS), {})
                counts[replica.id] = counts.get(replica.id, 0) + 1
        return found

    # For callers

    def exchange(
        self, caller: Caller, context: RouteContext, request: RequestHead
    ) -> TaskExchange | None:
        """The exchange of a request, if it is a call of a kept task, or asks for the page that
        documents them."""
        call = task_call(context.dispatcher.route, request)
        if call is None:
            return None
        return TaskExchange(caller, context, request, call, self._client, self._full)

    def _full(self, dispatcher: Dispatcher) -> str:
        """Why no further task is taken for a route; empty = there is room."""
        route = dispatcher.route
        server = self._server_of(route.name)
        queue = dispatcher.queue if server is None else server.queue
        waiting = queue.queued + len(self._outside.get(route.name, ()))
        if waiting < route.queue_limit:
            return ""
        return f"{route.name}: {waiting} wait (queue_limit={route.queue_limit}); come back later."

    # What the control plane says

    def _offered(self, offer: TaskOffer) -> None:
        if offer.id in self._runs or offer.id in self._deliveries:
            return
        run = TaskRun(
            offer,
            self._client,
            self._deliveries,
            displaced=self._wait_outside,
            ended=self._forget,
        )
        self._runs[offer.id] = run
        if not self._enter(run):
            self._wait_outside(run)

    def _dropped(self, task_id: str) -> None:
        run = self._runs.get(task_id)
        if run is None or run.running:
            return
        self._forget(run)
        self._outside.get(run.waits_at, {}).pop(run.id, None)
        if run.dispatcher is not None:
            run.dispatcher.withdraw(run)

    # Into the queue

    def _enter(self, run: TaskRun) -> bool:
        """Whether the task has entered a queue, or needs none."""
        server = self._server_of(self._route_of(run))
        if server is None:
            return False
        if run.lost and not server.route.may_run_twice:
            self._forget(run)
            what = "the gateway that had started it ended while it ran"
            self._deliveries.deliver(self._deliveries.failure(run.id, run.route, what))
            return True
        return run.enter(server.dispatcher)

    def _route_of(self, run: TaskRun) -> str:
        """The route of the task's version; of `main`, where that version is no longer there."""
        version = self._servers(f"{run.route}{VERSION}{run.version}") if run.version else None
        return run.route if version is None or version.closing else version.route.name

    def _server_of(self, route: str) -> RouteServer | None:
        """The server in which tasks of a route wait: the tasks' own, if there is one."""
        apart = self._servers(route + TASKS)
        if apart is not None and not apart.closing:
            return apart
        return self._servers(route)

    def _wait_outside(self, run: TaskRun) -> None:
        """The task has no place in a queue, and gets one when that is possible."""
        if run.id in self._runs:
            run.waits_at = self._route_of(run)
            self._outside.setdefault(run.waits_at, {})[run.id] = run
            self._enter_later()

    def _forget(self, run: TaskRun) -> None:
        """The task has ended, or is not wanted."""
        self._runs.pop(run.id, None)

    def _enter_later(self) -> None:
        if self._entering is None:
            loop = asyncio.get_running_loop()
            self._entering = loop.call_later(OUTSIDE_S, self._enter_all)

    def _enter_all(self) -> None:
        """Tries the tasks outside in their order; if one finds no room, those after it are not
        tried."""
        self._entering = None
        for route, runs in list(self._outside.items()):
            for run in list(runs.values()):
                if not self._enter(run):
                    break
                runs.pop(run.id, None)
            if not runs:
                del self._outside[route]
        if self._outside:
            self._enter_later()
