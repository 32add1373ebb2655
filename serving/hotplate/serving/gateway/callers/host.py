"""A route, as far as its callers' connections mind. `RouteServer` implements it.

`replicas/call.py` says why it is no protocol.
"""

from __future__ import annotations

from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import SlotWatcher
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.route_context import RouteContext


class Host(SlotWatcher):
    """Lets requests in, and says when nobody is to stay.

    A route also watches its slots: compiled classes have one parent each.
    """

    context: RouteContext
    """What all the requests share."""
    heads: HeadCache[RequestHead]
    """Of requests that came before."""

    @property
    def parting(self) -> bool:
        """Whether it is to have no callers any longer."""
        raise NotImplementedError

    def exchange(self, caller: Caller, request: RequestHead) -> Exchange:
        """What moves the request."""
        raise NotImplementedError

    def begin(self, exchange: Exchange, now: float) -> None:
        """A request's turn on its connection has come."""
        raise NotImplementedError

    def waits_for_body(self, exchange: Exchange) -> bool:
        """Whether a request whose body is not here is to wait for it: not where it is refused
        whatever comes, or goes for no slot."""
        raise NotImplementedError
