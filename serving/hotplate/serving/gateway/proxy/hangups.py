"""When a route checks the WebSockets whose callers have gone, and what becomes of their slots."""

from __future__ import annotations

from collections.abc import Mapping

from hotplate.serving.gateway.protocol.routes import Change
from hotplate.serving.gateway.proxy.abandoned import Abandoned
from hotplate.serving.gateway.proxy.alarm import Alarm
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.replicas.call import Waiter


class Hangups:
    """Takes back the slots of one route's abandoned WebSockets; `Abandoned` decides when."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._abandoned: Abandoned[Waiter] = Abandoned()
        self._alarm = Alarm(self._on_timer)

    @property
    def by_replica(self) -> Mapping[str, int]:
        """Handlers that go on although their slots were given up, by replica; absent = none."""
        return self._abandoned.by_replica

    def caller_gone(self, call: Waiter) -> None:
        """The call's caller has gone, and the replica was notified."""
        dispatcher, ticket = self._dispatcher, call.ticket
        if ticket is None or ticket.replica is None:
            return
        now, after_s = dispatcher.loop.time(), dispatcher.limits.abandon_s
        self._abandoned.caller_gone(call, ticket.replica.id, now, after_s)
        self._watch()

    def ended(self, call: Waiter) -> None:
        """The replica is done with the call."""
        if self._abandoned.ended(call):
            self._dispatcher.changed(Change.COUNTS)

    def stop(self) -> None:
        self._alarm.cancel()

    # Inside

    def _watch(self) -> None:
        at = self._abandoned.next_at
        if at is not None:
            self._alarm.set(at)

    def _on_timer(self) -> None:
        for call in self._abandoned.due(self._dispatcher.loop.time()):
            self._dispatcher.withdraw(call)
        self._watch()
