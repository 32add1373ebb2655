"""WebSockets whose callers have gone, and whose handlers may go on for ever. Pure: time is told.

A slot comes back as its handler ends. A WebSocket's handler may never look whether its caller is
still there, and nobody can wait for its answer: nothing of it is lost, and nothing of it ends by
itself. So it has `after_s` from when its replica was told; then its slot is given again, though it
goes on, and it counts as *abandoned* until its connection ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

Socket = TypeVar("Socket")


class Abandoned(Generic[Socket]):
    """Of one route; any object stands for a WebSocket."""

    def __init__(self) -> None:
        self._left: dict[Socket, tuple[str, float]] = {}
        """Whose slots are waited for: the replica and until when, the first one due first."""
        self._going_on: dict[Socket, str] = {}
        """Whose slots are not: the replica."""

    @property
    def next_at(self) -> float | None:
        """When the next one is due; None = there is none."""
        return next((due_at for _, due_at in self._left.values()), None)

    @property
    def by_replica(self) -> Mapping[str, int]:
        """How many handlers go on without a slot; replicas without any are left out."""
        counts: dict[str, int] = {}
        for replica in self._going_on.values():
            counts[replica] = counts.get(replica, 0) + 1
        return counts

    def caller_gone(self, socket: Socket, replica: str, now: float, after_s: float) -> None:
        """Its caller has gone, and its replica was told. Said twice, the first time counts."""
        self._left.setdefault(socket, (replica, now + after_s))

    def ended(self, socket: Socket) -> bool:
        """Its handler has ended, or its replica; whether it had been abandoned."""
        self._left.pop(socket, None)
        return self._going_on.pop(socket, None) is not None

    def due(self, now: float) -> Sequence[Socket]:
        """Those whose slots are not waited for from now on."""
        due = [socket for socket, (_, due_at) in self._left.items() if due_at <= now]
        for socket in due:
            self._going_on[socket], _ = self._left.pop(socket)
        return due
