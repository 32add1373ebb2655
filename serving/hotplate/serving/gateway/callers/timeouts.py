"""How long a caller may take to send requests and to take responses. Pure: time is an argument."""

from __future__ import annotations

from hotplate.serving.gateway.errors import RequestSlow
from hotplate.serving.gateway.limits import Limits


class Timeouts:
    """The times of one connection."""

    __slots__ = (
        "_arriving_since",
        "_full_at",
        "_full_bytes",
        "_in_head",
        "_limits",
        "_read_at",
        "_taken_at",
        "_unsent_bytes",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._arriving_since: float | None = None
        """When the next request began to come, which cannot be served yet; None = none has
        begun."""
        self._in_head = False
        self._read_at = 0.0
        """When something came last, or reading was resumed."""
        self._unsent_bytes = 0
        self._taken_at = 0.0
        """When the caller took something last; then `_unsent_bytes` remained."""
        self._full_at = 0.0
        self._full_bytes = 0
        """What remained unsent when writing was paused, and when that was."""

    # Sending

    @property
    def arriving(self) -> bool:
        """Whether a request has begun to come and cannot be served yet."""
        return self._arriving_since is not None

    def next_part(self) -> None:
        """A header is whole, or reading has ended: the next part has its own time."""
        self._arriving_since = None

    def read(self, now: float, *, in_head: bool, awaits_body: bool) -> None:
        """Bytes came. `in_head` and `awaits_body` say what the next request lacks now."""
        self._read_at = now
        self._in_head = in_head
        if not (in_head or awaits_body):
            self._arriving_since = None
        elif self._arriving_since is None:
            self._arriving_since = now

    def resumed(self, now: float) -> None:
        """Reading was resumed after a pause, which was not the caller's."""
        self._read_at = now
        if self._arriving_since is not None:
            self._arriving_since = now

    def slow(self, now: float, *, sending: bool) -> RequestSlow | None:
        """Why the caller's time to send is over; `sending`: the body of the request that is being
        served is still coming."""
        limits = self._limits
        since = self._arriving_since
        if since is not None and self._in_head:
            if now - since >= limits.head_s:
                return RequestSlow(
                    f"The request's header did not come in {limits.head_s:g} s; send it again."
                )
        elif (sending or since is not None) and self.silent_s(now) >= limits.body_s:
            return RequestSlow(
                f"Nothing more of the body came in {limits.body_s:g} s; send it again."
            )
        return None

    def silent_s(self, now: float) -> float:
        """How long nothing has come while the connection was read."""
        return now - self._read_at

    # Taking

    def full(self, now: float, unsent_bytes: int) -> None:
        """Writing is paused, because so much waits for the caller."""
        self._taken_at, self._unsent_bytes = now, unsent_bytes
        self._full_at, self._full_bytes = now, unsent_bytes

    def takes_nothing(self, now: float, unsent_bytes: int) -> bool:
        """Whether the caller has taken no byte for too long."""
        if unsent_bytes < self._unsent_bytes:
            self._taken_at, self._unsent_bytes = now, unsent_bytes
        return now - self._taken_at >= self._limits.take_s

    def takes_little(self, now: float, unsent_bytes: int) -> bool:
        """Whether the caller has taken so little since writing was paused that others need not wait
        for it."""
        limits = self._limits
        taken = max(0, self._full_bytes - unsent_bytes)
        return now - self._full_at >= limits.take_stall_s + taken / limits.slow_bytes_per_s
