"""Where an exchange's answer comes from, as far as the exchange minds."""

from __future__ import annotations


class ResponseSource:
    """Has no end of its own: whoever answers opens and closes it."""

    __slots__ = ("host", "relays", "tells", "tunnel", "worker", "write_paused")

    def __init__(self, *, worker: bool = False, relays: bool = False, host: bytes = b"") -> None:
        self.worker = worker
        """It is our worker's: it ends with the handler, and can be told that the caller left."""
        self.relays = relays
        """It is another gateway's, which is to know when the caller leaves."""
        self.host = host
        """What the request's `Host` says there, if its caller named none."""
        self.tells = worker or relays
        """Whether it says when the handler of a request begins."""
        self.tunnel = False
        """Another protocol is spoken now."""
        self.write_paused = False
        """It takes nothing more of the request for now."""

    @property
    def address(self) -> str:
        return "?"

    def write(self, data: bytes) -> None:
        """More of the request."""

    def half_close(self) -> None:
        """The caller has left; the answer's end is still waited for."""

    def leave(self) -> None:
        """The caller has left, and the answer is not waited for here."""

    def pause_reading(self) -> None:
        """The caller takes nothing more of the answer for now."""

    def resume_reading(self) -> None:
        """It takes more."""
