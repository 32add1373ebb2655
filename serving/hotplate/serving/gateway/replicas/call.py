"""What waits for a slot of a replica, and what a connection to one serves.

Declared here and implemented above: a connection knows no more of a request than this. They are
plain classes whose methods raise NotImplementedError, because calls of a `Protocol` are slow once
this is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.request_head import Field, RequestHead
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.queue.ticket import Ticket
from hotplate.serving.gateway.replicas.response_source import ResponseSource


class Waiter:
    """Holds a ticket while it waits for a slot or has one."""

    __slots__ = ("is_task", "relayed", "ticket")

    def __init__(self, *, is_task: bool = False) -> None:
        self.ticket: Ticket[Waiter] | None = None
        """None before it is submitted and after its place or slot was given back."""
        self.relayed = False
        """It was admitted to be passed on to the gateway that owns the route."""
        self.is_task = is_task
        """It waits among tasks only, where a route has slots of their own for them."""

    @property
    def says_of_replica(self) -> bool:
        """Whether the time that it took tells how much its replica has to do."""
        return False

    @property
    def size_bytes(self) -> int:
        """What of it waits here."""
        return 0

    def granted(self, replica: Destination, now: float) -> None:
        """It has a slot of the replica, since `now`."""
        raise NotImplementedError

    def enter_anew(self, due_at: float) -> None:
        """It has lost its place, because another gateway owns the route now, or this one does. Its
        answer is due when it was, also where it waits next; infinite = nobody has counted yet."""
        raise NotImplementedError

    def fail(self, error: GatewayError) -> None:
        """Ends it with the error."""
        raise NotImplementedError


class Call(Waiter):
    """A request at a replica; the connection that serves it tells it of the response."""

    __slots__ = ("request",)

    def __init__(self, request: RequestHead) -> None:
        super().__init__()
        self.request = request

    @property
    def is_wanted(self) -> bool:
        """Whether it is still to be sent, now that there is a connection for it."""
        raise NotImplementedError

    @property
    def sent_whole(self) -> bool:
        """Whether nothing more of it is to go to the replica."""
        raise NotImplementedError

    # The request

    def go(self, source: ResponseSource) -> None:
        """Sends what there is of the request; the rest follows as it comes."""
        raise NotImplementedError

    def send_on(self) -> None:
        """The replica takes more of the request again."""
        raise NotImplementedError

    def balance(self) -> None:
        """Has the caller's body read on, or not, by how much of it the replica takes."""
        raise NotImplementedError

    def started(self) -> None:
        """The replica says that the request's handler begins."""
        raise NotImplementedError

    # The response

    def on_head(self, head: ResponseHead) -> None:
        raise NotImplementedError

    def on_body(self, data: bytes) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        """What has come at once was all told."""
        raise NotImplementedError

    def on_end(self, trailers: Sequence[Field] = ()) -> None:
        """The response is whole, and its handler has ended."""
        raise NotImplementedError

    def on_response(self, head: ResponseHead, body: bytes, now: float) -> None:
        """All of a response at once, of which the head says how long it is: comes to the same as
        `on_head`, `on_body` and `on_end`."""
        raise NotImplementedError

    def on_nonsense(self, what: str) -> None:
        """What came is not HTTP/1.1; the connection has ended."""
        raise NotImplementedError

    def open_tunnel(self, first: bytes) -> None:
        """The replica has changed the protocol; `first` are its first bytes in it."""
        raise NotImplementedError

    def on_tunnel(self, data: bytes) -> None:
        """More of the other protocol."""
        raise NotImplementedError

    def tunnel_closed(self) -> None:
        raise NotImplementedError

    # The connection

    def unreachable(self) -> None:
        """The replica took no connection: nothing was sent."""
        raise NotImplementedError

    def lost(self, *, unread: bool, silent: bool) -> None:
        """The connection ended before the response did; `unread`: and before the replica can have
        read any of the request; `silent`: and what it said last may not have come."""
        raise NotImplementedError


class Destination:
    """Where a granted request goes: one replica, or the gateway that owns the route."""

    id: str
    address: str
    worker: bool
    """It runs our worker, which says when a handler begins and hears when a caller has left."""
    shown: str
    """What callers are told of where it is."""

    def dispatch(self, call: Call, now: float) -> None:
        """Sends the call on a connection."""
        raise NotImplementedError

    def refused(self, error: OSError) -> None:
        """It took no connection."""
        raise NotImplementedError
