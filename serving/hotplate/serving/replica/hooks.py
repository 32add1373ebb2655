"""What is put around a bento's ASGI application; runs in the replica (Python >= 3.9)."""

from __future__ import annotations

import signal
from typing import Any, Awaitable, Callable  # noqa: UP035

Application = Callable[..., Awaitable[None]]


class StartWatch:
    """The outermost ASGI layer: tells when the service has been constructed and may answer, or why
    it could not be, and lets SIGTERM end the process at once before that.

    BentoML constructs the service, and runs its start-up hooks, inside the ASGI lifespan's
    startup; the server takes connections right after it.
    """

    def __init__(
        self, app: Application, ready: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._app = app
        self._ready = ready
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        # The server's handler ends a process once it has started; until then there is nothing to
        # finish, and a constructor that loads a model would hold it for minutes.
        graceful = signal.signal(signal.SIGTERM, signal.SIG_DFL)

        async def watched(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                signal.signal(signal.SIGTERM, graceful)
                self._ready()
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except BaseException as error:
            self._failed(error)
            raise


def watch_start(
    service_class: Any, ready: Callable[[], None], failed: Callable[[BaseException], None]
) -> None:
    """Wrap what `service_class.to_asgi` (`_bentoml_sdk.Service`) makes, for every service."""
    to_asgi = service_class.to_asgi

    def watched(self: Any, *args: Any, **kwargs: Any) -> StartWatch:
        return StartWatch(to_asgi(self, *args, **kwargs), ready, failed)

    service_class.to_asgi = watched


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
