"""Whoever asked, as far as what moves the request minds. The caller's connection implements it.

`replicas/call.py` says why it is no protocol.
"""

from __future__ import annotations

from hotplate.serving.gateway.admission.terms import Local
from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.replicas.call import Call


class Caller:
    """Has one request at a time whose turn it is; what answers is that one's answer."""

    __slots__ = ("read_paused", "write_paused")

    def __init__(self) -> None:
        self.read_paused = False
        """Nothing more is read of what it sends, for now."""
        self.write_paused = False
        """It takes nothing more of its answers, for now."""

    @property
    def parting(self) -> bool:
        """Whether the answer that is under way is to be the connection's last."""
        raise NotImplementedError

    # Its requests

    def serves(self, call: Call) -> bool:
        """Whether it is this one's turn."""
        raise NotImplementedError

    def awaits(self, call: Call) -> bool:
        """Whether it is this one's turn, but for its body."""
        raise NotImplementedError

    def let_in(self, call: Call) -> None:
        """The call goes for a slot, and its body follows."""
        raise NotImplementedError

    def begin_again(self, now: float) -> None:
        """The one whose turn it is has lost its place, and enters once more."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Asks for the body that was announced, once."""
        raise NotImplementedError

    def balance(self) -> None:
        """Reads on, or stops reading, by how much of what was read has found its place."""
        raise NotImplementedError

    def silent_s(self, now: float) -> float:
        """How long nothing has come, of the time in which it was read."""
        raise NotImplementedError

    # Their answers

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def tell_started(self) -> None:
        """The request may have an effect from now on, which another gateway is to know."""
        raise NotImplementedError

    def answer_local(self, local: Local, retry_after_s: float | None = None) -> None:
        """Answers the one whose turn it is with what the gateway says itself."""
        raise NotImplementedError

    def answer_error(self, error: GatewayError) -> None:
        """Answers the one whose turn it is with the error."""
        raise NotImplementedError

    def finished(self, now: float) -> None:
        """The answer has been written whole: the next request may begin."""
        raise NotImplementedError

    def tunnel_opened(self) -> None:
        """Another protocol is spoken from here on, in which silence says nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes once everything written is out."""
        raise NotImplementedError

    def cut(self) -> None:
        """Ends the connection in the middle of an answer, so that it does not look complete."""
        raise NotImplementedError

    def end_if_it_takes_little(self, now: float) -> None:
        """Ends it if it has a slot and takes so little of its answer that others need not wait for
        it."""
        raise NotImplementedError
