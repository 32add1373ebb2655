"""What all requests of a route share on their way."""

from __future__ import annotations

import secrets

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.fleet.recalls import Recalls
from hotplate.serving.gateway.proxy.body_gate import BodyGate
from hotplate.serving.gateway.proxy.dispatcher import COUNTS, Dispatcher
from hotplate.serving.gateway.proxy.hangups import Hangups
from hotplate.serving.gateway.telemetry.access_log import AccessLog


class RouteContext:
    """One route's queue and replicas, its checks of slow and gone callers, and its log."""

    def __init__(self, dispatcher: Dispatcher, access_log: AccessLog | None) -> None:
        self.dispatcher = dispatcher
        self.counters = dispatcher.counters
        self.loop = dispatcher.loop
        self.bodies = BodyGate(dispatcher)
        self.hangups = Hangups(dispatcher)
        self.recalls = Recalls(dispatcher.loop)
        self.access_log = access_log
        self.version_line = b""
        """The header line with the version of its responses; empty = there is no canary."""
        self._id_prefix = secrets.token_hex(6).encode()
        self._ids = 0

    def new_id(self) -> bytes:
        """An id for a request that came without one."""
        self._ids += 1
        return b"%b-%x" % (self._id_prefix, self._ids)

    def refused(self, error: GatewayError) -> None:
        """A request was answered with an error of the gateway's own."""
        self.counters.refused(error.code)
        self.dispatcher.changed(COUNTS)

    def stop(self) -> None:
        """Stops all checks of callers."""
        self.bodies.stop()
        self.hangups.stop()
