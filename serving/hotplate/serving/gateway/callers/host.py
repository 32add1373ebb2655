"""A route as its callers' connections see it; `RouteServer` implements it.

`replicas/call.py` says why it is no `Protocol`.
"""

from __future__ import annotations

from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import SlotWatcher
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.route_context import RouteContext


class Host(SlotWatcher):
    """A route as its callers' connections see it. It also watches its slots, because compiled
    classes have one parent each."""

    context: RouteContext
    """What all requests of the route share."""
    heads: HeadCache[RequestHead]
    """The heads of earlier requests."""

    @property
    def draining(self) -> bool:
        """Whether its callers are to leave."""
        raise NotImplementedError  # the route server's

    def exchange(self, caller: Caller, request: RequestHead) -> Exchange:
        """Makes the exchange of a request."""
        raise NotImplementedError  # the route server's

    def begin(self, exchange: Exchange, now: float) -> None:
        """The turn of a request on its connection has come."""
        raise NotImplementedError  # the route server's

    def waits_for_body(self, exchange: Exchange) -> bool:
        """Whether a request waits for its body before it is submitted: not if it is refused in any
        case, or needs no slot."""
        raise NotImplementedError  # the route server's
