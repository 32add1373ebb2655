"""How long a caller may take to send its requests and to take its answers. Pure: time is told."""

from __future__ import annotations

from hotplate.serving.gateway.errors import RequestSlow
from hotplate.serving.gateway.limits import Limits


class Timeouts:
    """Of one connection."""

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
        """When what is needed to serve the next request began to come."""
        self._in_head = False
        self._read_at = 0.0
        """When something came last, or reading went on."""
        self._unsent_bytes = 0
        self._taken_at = 0.0
        """When the caller took something last, of which `_unsent_bytes` are left."""
        self._full_at = 0.0
        self._full_bytes = 0
        """What waited for the caller when nothing more was to be written, and since when."""

    # Sending

    @property
    def arriving(self) -> bool:
        """Whether a request has begun to come and cannot be served yet."""
        return self._arriving_since is not None

    def next_part(self) -> None:
        """A header came whole, or nothing more is read: what comes next has its own time."""
        self._arriving_since = None

    def read(self, now: float, *, in_head: bool, awaits_body: bool) -> None:
        """Bytes came; of a request that is not served yet, they leave it where these say."""
        self._read_at = now
        self._in_head = in_head
        if not (in_head or awaits_body):
            self._arriving_since = None
        elif self._arriving_since is None:
            self._arriving_since = now

    def resumed(self, now: float) -> None:
        """We read on after a pause, which was not the caller's."""
        self._read_at = now
        if self._arriving_since is not None:
            self._arriving_since = now

    def slow(self, now: float, *, sending: bool) -> RequestSlow | None:
        """Why the caller's time to send is over; `sending`: a request is served whose body still
        comes."""
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
        """How long nothing has come, of the time in which we read."""
        return now - self._read_at

    # Taking

    def full(self, now: float, unsent_bytes: int) -> None:
        """So much waits for the caller that nothing more is to be written."""
        self._taken_at, self._unsent_bytes = now, unsent_bytes
        self._full_at, self._full_bytes = now, unsent_bytes

    def takes_nothing(self, now: float, unsent_bytes: int) -> bool:
        """Whether the caller has taken no byte of what waits for too long."""
        if unsent_bytes < self._unsent_bytes:
            self._taken_at, self._unsent_bytes = now, unsent_bytes
        return now - self._taken_at >= self._limits.take_s

    def takes_little(self, now: float, unsent_bytes: int) -> bool:
        """Whether the caller, of whom nothing more is to be written, takes so little that others
        need not wait for it."""
        limits = self._limits
        taken = max(0, self._full_bytes - unsent_bytes)
        return now - self._full_at >= limits.take_stall_s + taken / limits.slow_bytes_per_s
