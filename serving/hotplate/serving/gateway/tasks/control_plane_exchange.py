"""A caller's call of a task route, which the control plane answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from hotplate.serving.gateway.admission.cors import answer_lines
from hotplate.serving.gateway.admission.gate import is_for_gateways
from hotplate.serving.gateway.admission.task_routes import DOCS, TaskCall
from hotplate.serving.gateway.admission.terms import Terms
from hotplate.serving.gateway.errors import GatewayError, ShareFull, TasksAway
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.frames import framed
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.protocol.version_shares import MAIN
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.replicas.response_source import ResponseSource
from hotplate.serving.gateway.tasks.control_plane_client import ControlPlaneClient
from hotplate.serving.gateway.tasks.frame_heads import (
    framed_response,
    is_version_line,
    run_head,
)

log = logging.getLogger(__name__)


class TaskExchange(Exchange):
    """Passes a submission on to the control plane as it comes, and the response back."""

    __slots__ = ("_call", "_calling", "_client", "_full", "_more", "unknown_there")

    def __init__(
        self,
        caller: Caller,
        context: RouteContext,
        request: RequestHead,
        task: TaskCall,
        client: ControlPlaneClient,
        full: Callable[[Dispatcher], str],
    ) -> None:
        """`full` returns why a route takes no further task; empty = it does."""
        super().__init__(caller, context, request)
        self.task = self._call = task
        self._client = client
        self._full = full
        self._more = asyncio.Event()
        """Set when more of the body, or its end, has come."""
        self._calling: asyncio.Task[None] | None = None
        self.unknown_there = False
        """Whether the control plane could not answer, so that it is a call like any other."""

    # The caller's side

    def serve_elsewhere(self, terms: Terms, *, ready: bool) -> bool:
        """Has the control plane answer, unless it was asked already, or a replica can answer as
        well."""
        if self.relayed or self.unknown_there:
            return False
        if self._call.verb == DOCS and (ready or self._version):
            return False  # the control plane knows the page of `main`
        self._serve(terms)
        return True

    def take_body(self, data: bytes) -> None:
        super().take_body(data)
        self._more.set()

    def end_body(self, trailers: Sequence[Field]) -> None:
        super().end_body(())
        self._more.set()

    @property
    def may_begin(self) -> bool:
        return True  # it goes for no slot

    @property
    def receiving(self) -> bool:
        return self._calling is not None and not self.request_done and not self.answered

    def caller_left(self) -> None:
        super().caller_left()
        self._stop()

    def fail(self, error: GatewayError) -> None:
        super().fail(error)
        self._stop()

    def begin_submission(self) -> bytes:
        """The beginning of the frame, as soon as the body may come."""
        caller, route = self.caller, self.dispatcher.route
        if caller is not None and self.request.expects_continue and not self.received:
            caller.send_continue()
        return framed(
            run_head(
                self.request,
                self.request_id,
                self._call,
                with_authorization=not is_for_gateways(route, self.request),
            )
        )

    async def next_pieces(self) -> Sequence[bytes]:
        """The pieces of the body that have come since the last call; none = that was all."""
        while True:
            self._more.clear()
            pieces = list(self._body)
            self._drop_body()
            if not self.request_done and self.caller is not None:
                self.caller.adjust_reading()
            if pieces or self.request_done:
                return pieces
            await self._more.wait()

    # Inside

    @property
    def _version(self) -> str:
        """The version whose task it is; empty = `main`, or there is no canary."""
        version = self.dispatcher.route.version
        return "" if version == MAIN else version

    def _serve(self, terms: Terms) -> None:
        """Its turn has come; the terms are those of a similar request to a replica."""
        if self._call.starts and (full := self._full(self.dispatcher)):
            self.fail(
                ShareFull(
                    full,
                    retry_after_s=self.dispatcher.queue.estimates.retry_after_s(
                        self.context.loop.time()
                    ),
                )
            )
            return
        turn = {}
        if self._call.verb == "submit":
            turn = {"organization": terms.organization, "priority": str(terms.priority)}
            if self._version:
                turn["version"] = self._version
        self._calling = asyncio.create_task(self._call_control_plane(turn))

    def _stop(self) -> None:
        if self._calling is not None and self._calling is not asyncio.current_task():
            self._calling.cancel()

    async def _call_control_plane(self, turn: Mapping[str, str]) -> None:
        submission = self if self._call.verb == "submit" else None
        route = self.dispatcher.route.name.partition(VERSION)[0]
        try:
            async with self._client.call(route, self._call, submission, **turn) as answer:
                await self._pass_on(answer.head, answer.size_bytes, answer.body)
        except GatewayError as error:
            if self._call.verb == DOCS and not self.answered and self.caller is not None:
                self.unknown_there = True
                self.caller.submit_again(self.context.loop.time())
            else:
                self.fail(error)
        except Exception:  # or else the caller would wait for ever
            log.exception("%s: a call of a task ended with a fault of the gateway", route)
            self.fail(TasksAway(f"{route}: the gateway failed at this call; try again."))

    async def _pass_on(self, head: bytes, size_bytes: int, body: AsyncIterator[bytes]) -> None:
        answer = framed_response(head, size_bytes)
        if answer.names_version and not self.context.version_line:  # the canary is over
            answer.lines = [line for line in answer.lines if not is_version_line(line)]
        cors = self.dispatcher.route.cors
        if cors is not None:
            # The handler's were for the page that submitted the task.
            own = [line for line in answer.lines if not line.lower().startswith(b"access-control-")]
            answer.lines = [*own, answer_lines(cors, self.request)]
        source = _ResponseSource()
        if self.request_done:  # or else what it still sends would go there
            self.upstream = source
        self.on_head(answer)
        async for piece in body:
            if self.request.method != b"HEAD":
                self.on_body(piece)
            self.flush()
            if self.caller is None:
                return
            await source.open.wait()
        self.flush()
        if self.caller is not None:
            self.on_end()


class _ResponseSource(ResponseSource):
    """The control plane's response, which can be paused."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()

    def pause_reading(self) -> None:
        self.open.clear()

    def resume_reading(self) -> None:
        self.open.set()
