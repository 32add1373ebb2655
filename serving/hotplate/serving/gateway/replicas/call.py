"""What waits for a slot of a replica, and what a connection to one serves.

These classes are declared here and implemented above: a connection knows no more of a request than
this. Their methods raise NotImplementedError, and they are no `Protocol`, because calls of a
protocol's methods are slow in compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.queue.ticket import Ticket
from hotplate.serving.gateway.replicas.fence import FenceLines
from hotplate.serving.gateway.replicas.response_source import ResponseSource


class Waiter:
    """What waits for a slot or has one; its ticket stands in the queue for it."""

    __slots__ = ("is_task", "relayed", "ticket")

    def __init__(self, *, is_task: bool = False) -> None:
        self.ticket: Ticket[Waiter] | None = None
        """None before it is submitted, and after its place or slot was given up."""
        self.relayed = False
        """Whether it was admitted to be passed on to the gateway that owns the route."""
        self.is_task = is_task
        """Whether it waits among tasks, which may have slots of their own."""

    @property
    def is_sample(self) -> bool:
        """Whether its duration says something about its replica."""
        return False

    @property
    def size_bytes(self) -> int:
        """Bytes of it that wait here."""
        return 0

    def count_answer(self, kind: int) -> None:
        """Counts how its replica has answered, for the replica's version."""
        if self.ticket is not None:
            self.ticket.count_answer(kind)

    def granted(self, replica: Destination, now: float) -> None:
        """It has a slot of the replica since `now`."""
        raise NotImplementedError

    def resubmit(self, due_at: float) -> None:
        """It has lost its place, because the route's owner has changed, and has to be submitted
        again. Its response is due when it was; infinite = that is not determined yet."""
        raise NotImplementedError

    def fail(self, error: GatewayError) -> None:
        """Ends it with the error."""
        raise NotImplementedError


class Call(Waiter):
    """A request at a replica. The connection that serves it passes the response to it."""

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
        """Whether all of it has been sent to the replica."""
        raise NotImplementedError

    # The request

    def send_to(self, source: ResponseSource) -> None:
        """Sends what has come of the request; the rest follows as it comes."""
        raise NotImplementedError

    def send_more(self) -> None:
        """The replica takes more of the request again."""
        raise NotImplementedError

    def adjust_reading(self) -> None:
        """Pauses or resumes reading of the caller's body, by how much of it the replica takes."""
        raise NotImplementedError

    def started(self) -> None:
        """The replica says that the request's handler begins; another gateway, that it may."""
        raise NotImplementedError

    def waits(self) -> None:
        """The other gateway says that it has not begun, and waits there again."""
        raise NotImplementedError

    # The response

    def on_head(self, head: ResponseHead) -> None:
        raise NotImplementedError

    def on_body(self, data: bytes) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        """All that was read at once has been passed on."""
        raise NotImplementedError

    def on_end(self, trailers: Sequence[Field] = ()) -> None:
        """The response is whole, and its handler has ended."""
        raise NotImplementedError

    def on_response(self, head: ResponseHead, body: bytes, now: float) -> None:
        """A whole response of known length at once: the same as `on_head`, `on_body` and
        `on_end`."""
        raise NotImplementedError

    def on_invalid_response(self, what: str) -> None:
        """What came is not HTTP/1.1; the connection has ended."""
        raise NotImplementedError

    def open_tunnel(self, first: bytes) -> None:
        """The replica has changed the protocol; `first` are its first bytes in it."""
        raise NotImplementedError

    def on_tunnel(self, data: bytes) -> None:
        """More bytes of the other protocol."""
        raise NotImplementedError

    def tunnel_closed(self) -> None:
        raise NotImplementedError

    # The connection

    def unreachable(self) -> None:
        """The replica took no connection: nothing was sent."""
        raise NotImplementedError

    def lost(self, *, unread: bool, silent: bool, returned: bool = False) -> None:
        """The connection ended before the response did. `unread`: the replica cannot have read any
        of the request; `silent`: its last bytes may have been lost; `returned`: our worker has not
        begun it and gives it back, so that it does not count as sent."""
        raise NotImplementedError


class Destination:
    """Where a granted request goes: one replica, or the gateway that owns the route."""

    id: str
    address: str
    worker: bool
    """Whether it runs our worker, which says when a handler begins and learns when a caller has
    left."""
    public_address: str
    """Its address as callers may see it."""
    fence: FenceLines
    """What a worker is told with each request."""

    def dispatch(self, call: Call, now: float) -> None:
        """Sends the call on a connection."""
        raise NotImplementedError

    def refused(self, error: OSError) -> None:
        """It took no connection."""
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        """It ended a connection with a request on it, or another one answers at its address."""
        raise NotImplementedError
