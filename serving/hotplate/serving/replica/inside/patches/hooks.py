"""What is put around a bento's ASGI application; runs in the replica (Python >= 3.9)."""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Awaitable, Callable, Collection  # noqa: UP035

Application = Callable[..., Awaitable[None]]

TASK_ID = b"hotplate-task-id"
ANSWER_BYTES = b"hotplate-answer-bytes"
"""On a response that ends later than its length: how much of it is for the caller."""


BYSTANDERS: set[int] = set()
"""Children of this process that are no program of the service, and end with it."""


class Middleware:
    """An ASGI application around another, with the inner one's attributes."""

    def __init__(self, app: Application) -> None:
        self.app = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)


class StartWatch(Middleware):
    """The outermost layer: tells when the service has been constructed and may answer, or why
    it could not be, and has `early` answer a SIGTERM before that.

    BentoML constructs the service, and runs its start-up hooks, inside the ASGI lifespan's
    startup; the server takes connections right after it.
    """

    def __init__(
        self,
        app: Application,
        ready: Callable[[], None],
        failed: Callable[[BaseException], None],
        early: Any = signal.SIG_DFL,
    ) -> None:
        """`early` is a handler as `signal.signal` takes it; by default the process ends at once."""
        super().__init__(app)
        self._ready = ready
        self._failed = failed
        self._early = early

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        # The server's handler ends a process once it has started; until then there is nothing to
        # finish, and a constructor that loads a model would hold it for minutes.
        graceful = signal.signal(signal.SIGTERM, self._early)

        async def watched(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                signal.signal(signal.SIGTERM, graceful)
                self._ready()
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except BaseException as error:  # noted, and raised again
            self._failed(error)
            raise


class LocalClient(Middleware):
    """Sets the client's address to this machine's, because a Unix socket has none. It is outside of
    everything that reads a request's `client`, above all of what takes it from
    `X-Forwarded-For`."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan" and not scope.get("client"):
            scope = {**scope, "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 80)}
        await self.app(scope, receive, send)


def set_client_address() -> None:
    """Put `LocalClient` around what uvicorn has put around the application."""
    from uvicorn import Config

    load = Config.load

    def loaded(self: Any) -> None:
        load(self)
        self.loaded_app = LocalClient(self.loaded_app)

    kind: Any = Config
    kind.load = loaded


def pass_on(number: int, _: Any) -> None:
    """Handles SIGTERM like a shell in front of its command: has the children end, waits for them,
    and ends too. BentoML looks after its command's program only once that is healthy, and what
    outlives the replica's first process is killed."""
    import psutil

    children = [each for each in psutil.Process().children() if each.pid not in BYSTANDERS]
    for child in children:
        child.send_signal(number)
    psutil.wait_procs(children)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


class TaskName(Middleware):
    """Tells a task's handler its id, as BentoML does: `ctx.request.state.task_id`.

    The platform keeps tasks and calls their handlers like any API, with the id in a header that no
    caller from outside can send.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            task_ids = [value for name, value in scope["headers"] if name == TASK_ID]
            if task_ids:
                headers = [field for field in scope["headers"] if field[0] != TASK_ID]
                state = {**scope.get("state", {}), "task_id": task_ids[0].decode()}
                scope = {**scope, "headers": headers, "state": state}
        await self.app(scope, receive, send)


class TaskWatch(Middleware):
    """Has the answer to the submission of a task end when the task has, not before.

    So it is with tasks of services that only others of their bento call: those stay in the replica.
    BentoML runs a task after that answer, and the gateway takes the end of an answer for the end
    of its handler. So the head says in `ANSWER_BYTES` how much is for the caller, who gets it at
    once; the end follows when the task's handler has returned.
    """

    def __init__(self, app: Application, submissions: Collection[str]) -> None:
        super().__init__(app)
        self._submissions = frozenset(submissions)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in self._submissions:
            await self.app(scope, receive, send)
            return

        async def open_ended(message: Any) -> None:
            if message["type"] == "http.response.start":
                await send(
                    {**message, "headers": [_promise(*field) for field in message["headers"]]}
                )
            else:
                await send({**message, "more_body": True})

        await self.app(scope, receive, open_ended)
        await send({"type": "http.response.body", "body": b""})


def _promise(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return (ANSWER_BYTES if name.lower() == b"content-length" else name), value


class CommandWatch(Middleware):
    """Reports that the program of a custom command has ended by itself, which BentoML does not
    check."""

    def __init__(self, app: Application, context: Any, ended: Callable[[int], None]) -> None:
        super().__init__(app)
        self._context = context
        """The service's context; BentoML puts the process into its `state` when the program is
        healthy."""
        self._ended = ended

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        watching: list[asyncio.Task[None]] = []

        async def listened() -> Any:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                for task in watching:
                    task.cancel()
            return message

        async def watched(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                watching.append(asyncio.create_task(self._watch()))
            await send(message)

        await self.app(scope, listened, watched)

    async def _watch(self) -> None:
        process = self._context.state.get("proc")
        if process is not None:  # only one worker of a replica has it
            self._ended(await process.wait())


def wrap_applications(service_class: Any, wrap: Callable[[Any, Application], Application]) -> None:
    """Put `wrap(service, app)` in the place of what `to_asgi` makes of each service.

    `service_class` is `_bentoml_sdk.Service`.
    """
    to_asgi = service_class.to_asgi

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Application:
        return wrap(self, to_asgi(self, *args, **kwargs))

    service_class.to_asgi = wrapped


def keep_sessions() -> None:
    """Let no call to another service be cut by the calls after it.

    BentoML's client of a dependency closes its session after every 100 calls, under those that
    are still in flight, so that new connections find other replicas. Here the gateway finds a
    replica for each call.
    """
    try:
        from _bentoml_impl.client.proxy2 import SessionManager
    except ImportError:  # an older BentoML, which keeps its session
        return
    SessionManager._should_refresh = lambda self: False


def let_failures_out() -> None:
    """Let a request whose handler raised before it answered be answered with 500.

    BentoML's timer around each request looks at it again only when its time is over, and here that
    is never: the gateway keeps the deadlines.
    """
    from bentoml._internal.server.http.traffic import TimeoutMiddleware

    async def untimed(self: Any, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    TimeoutMiddleware.__call__ = untimed
