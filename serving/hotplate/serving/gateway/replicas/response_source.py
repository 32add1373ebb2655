"""Where an exchange's response comes from, as the exchange sees it."""

from __future__ import annotations

from hotplate.serving.gateway.replicas.fence import NO_LINE


class ResponseSource:
    """The source of one response. Its owner opens and closes it."""

    __slots__ = ("announces_start", "host", "relays", "tunnel", "worker", "write_paused")

    def __init__(self, *, worker: bool = False, relays: bool = False, host: bytes = b"") -> None:
        self.worker = worker
        """It is our worker: it ends with the handler, and can be notified that the caller left."""
        self.relays = relays
        """It is another gateway, which has to know when the caller leaves."""
        self.host = host
        """The request's `Host`, if its caller named none."""
        self.announces_start = worker or relays
        """Whether it says when the handler of a request begins."""
        self.tunnel = False
        """Another protocol is spoken now."""
        self.write_paused = False
        """It takes nothing more of the request for now."""

    @property
    def address(self) -> str:
        return "?"

    def fence_line(self, *, needs_slot: bool, may_return: bool) -> bytes:
        """The line of a request for the worker's fence, as `Fence.line`."""
        return NO_LINE

    def write(self, data: bytes) -> None:
        """More of the request."""

    def half_close(self) -> None:
        """The caller has left; the end of the response is still waited for."""

    def abandon(self) -> None:
        """The caller has left, and the response is not waited for."""

    def pause_reading(self) -> None:
        """The caller takes nothing more of the response for now."""

    def resume_reading(self) -> None:
        """The caller takes more again."""
