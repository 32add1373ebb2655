"""WebSockets whose callers have gone and whose handlers may never end. Pure: time is an argument.

A slot comes back as its handler ends. But a WebSocket's handler may never check whether its caller
is still there, and unlike a response it does not end by itself. So the handler has `after_s` from
when its replica was notified. Then its slot is given up although it goes on, and it counts as
*abandoned* until its connection ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

Socket = TypeVar("Socket")


class Abandoned(Generic[Socket]):
    """The WebSockets of one route whose callers have gone; any object stands for a WebSocket."""

    def __init__(self) -> None:
        self._waiting: dict[Socket, tuple[str, float]] = {}
        """WebSockets whose slots are waited for: the replica and until when, the first one due
        first."""
        self._abandoned: dict[Socket, str] = {}
        """Abandoned WebSockets: the replica."""

    @property
    def next_at(self) -> float | None:
        """When the next one is due; None = there is none."""
        return next((due_at for _, due_at in self._waiting.values()), None)

    @property
    def by_replica(self) -> Mapping[str, int]:
        """How many handlers go on without a slot; replicas without any are left out."""
        counts: dict[str, int] = {}
        for replica in self._abandoned.values():
            counts[replica] = counts.get(replica, 0) + 1
        return counts

    def caller_gone(self, socket: Socket, replica: str, now: float, after_s: float) -> None:
        """The caller has gone, and the replica was notified. Of several calls the first one
        counts."""
        self._waiting.setdefault(socket, (replica, now + after_s))

    def ended(self, socket: Socket) -> bool:
        """The handler has ended, or its replica; returns whether it had been abandoned."""
        self._waiting.pop(socket, None)
        return self._abandoned.pop(socket, None) is not None

    def due(self, now: float) -> Sequence[Socket]:
        """Returns the WebSockets that are abandoned from now on."""
        due = [socket for socket, (_, due_at) in self._waiting.items() if due_at <= now]
        for socket in due:
            self._abandoned[socket], _ = self._waiting.pop(socket)
        return due
