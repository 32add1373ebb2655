"""A caller's connection as an exchange sees it; `callers/downstream.py` implements it.

`replicas/call.py` says why it is no `Protocol`.
"""

from __future__ import annotations

from hotplate.serving.gateway.admission.terms import Local
from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.replicas.call import Call


class Caller:
    """A caller's connection. It serves one request at a time, and every response is that one's."""

    __slots__ = ("read_paused", "write_paused")

    def __init__(self) -> None:
        self.read_paused = False
        """Reading from the caller is paused."""
        self.write_paused = False
        """The caller takes nothing more of its responses for now."""

    @property
    def draining(self) -> bool:
        """Whether the current response is to be the last one of the connection."""
        raise NotImplementedError

    # Its requests

    def serves(self, call: Call) -> bool:
        """Whether it is this request's turn."""
        raise NotImplementedError

    def awaits(self, call: Call) -> bool:
        """Whether it is this request's turn, except that its body is waited for."""
        raise NotImplementedError

    def begin_early(self, call: Call) -> None:
        """The request may have a slot, and its body follows."""
        raise NotImplementedError

    def submit_again(self, now: float) -> None:
        """The request whose turn it is has lost its place in the queue, and is submitted again."""
        raise NotImplementedError

    def send_continue(self) -> None:
        """Sends `100 Continue`, once per request."""
        raise NotImplementedError

    def adjust_reading(self) -> None:
        """Reads on, or stops reading, depending on how much of what was read could be passed on."""
        raise NotImplementedError

    def silent_s(self, now: float) -> float:
        """How long nothing has come, not counting the time in which reading was paused."""
        raise NotImplementedError

    # Their answers

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def announce_start(self) -> None:
        """The request may have an effect from now on, which another gateway has to know before any
        replica does."""
        raise NotImplementedError

    def announce_wait(self) -> None:
        """The request has had no effect, and waits for a slot again."""
        raise NotImplementedError

    def answer_local(self, local: Local, retry_after_s: float | None = None) -> None:
        """Answers the request whose turn it is with a response of the gateway's own."""
        raise NotImplementedError

    def answer_error(self, error: GatewayError) -> None:
        """Answers the request whose turn it is with the error."""
        raise NotImplementedError

    def finished(self, now: float) -> None:
        """The whole response was written: the next request may begin."""
        raise NotImplementedError

    def tunnel_opened(self) -> None:
        """Another protocol is spoken from now on, in which silence is normal."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes once everything written was sent."""
        raise NotImplementedError

    def abort(self) -> None:
        """Closes in the middle of a response, so that it does not look complete."""
        raise NotImplementedError

    def abort_if_slow_reader(self, now: float) -> None:
        """Closes a connection whose request has a slot, if its caller takes so little of the
        response that others need not wait for it."""
        raise NotImplementedError
