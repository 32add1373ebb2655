"""The body of a request: what has come of it, and where that is until it has been sent."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.spool import Spool
from hotplate.serving.gateway.replicas.call import Call


class Upload(Call):
    """A request whose body may still be coming; a `SlowBody` (`slow_bodies.py`)."""

    __slots__ = (
        "_body",
        "_kept",
        "_trailers",
        "buffered",
        "caller",
        "held_bytes",
        "received",
        "request_done",
        "spool",
    )

    def __init__(self, caller: Caller, request: RequestHead) -> None:
        super().__init__(request)
        self.caller: Caller | None = caller
        """None once the caller has the response, has left, or ran out of time."""
        self.request_done = False
        """Whether all of the body has come."""
        self.received = 0
        """Body bytes that have come."""
        self.buffered = 0
        """Body bytes in memory that wait for a connection to a replica."""
        self.held_bytes = 0
        """Those of them that `BodyGate` counts, while the rest of the body is waited for."""
        self.spool: Spool | None = None
        """The end of a long body, which is not sent yet, in a file; what is in memory goes
        first."""
        self._body: list[bytes] = []
        """What waits for a connection, and what was sent and may have to be sent again."""
        self._kept = True
        """Whether all of the body that has come is in `_body`."""
        self._trailers: Sequence[Field] = ()

    # As the gate for bodies has it

    def refuse(self, error: GatewayError) -> None:
        """Refuses the request: it ends now, or when its turn comes."""
        raise NotImplementedError

    @property
    def receiving(self) -> bool:
        """Whether the replica has the request and waits for more of its body."""
        raise NotImplementedError

    def buffer(self, data: bytes) -> None:
        """Keeps more of the body in memory."""
        self._body.append(data)
        self.buffered += len(data)

    @property
    def awaited(self) -> bool:
        return self.caller is not None and self.caller.awaits(self)

    @property
    def is_uploading(self) -> bool:
        return self.ticket is not None and not self.request_done

    @property
    def address(self) -> bytes:
        return self.request.forwarded[0].rpartition(b",")[2].strip()

    @property
    def in_chunks(self) -> bool:
        return self.request.chunked

    @property
    def spooled_bytes(self) -> int:
        return 0 if self.spool is None else self.spool.size_bytes

    def silent_s(self, now: float) -> float:
        return 0.0 if self.caller is None else self.caller.silent_s(now)

    def slot_age_s(self, now: float) -> float:
        ticket = self.ticket
        return 0.0 if ticket is None or not self.receiving else now - ticket.granted_at

    # On its way

    @property
    def sent_whole(self) -> bool:
        return self.request_done and self.spool is None

    @property
    def size_bytes(self) -> int:
        return self.buffered + len(self.request.target)

    def adjust_reading(self) -> None:
        if self.caller is not None:
            self.caller.adjust_reading()

    def forget_body(self) -> None:
        """Drops the body: nothing more of it is to be sent."""
        self._drop_body()
        if self.spool is not None:
            self.spool.close()
            self.spool = None

    def _drop_body(self) -> None:
        self._kept = False
        self._body.clear()
        self.buffered = 0

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.request.chunked else data
