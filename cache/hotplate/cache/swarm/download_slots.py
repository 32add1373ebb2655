"""Download slots: how many chunks a node asks for at a time, apart for each kind of request."""

from __future__ import annotations

from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment

TRANSFERS = 4
"""Chunks that come from peers at once. In simulation, fewer leave the link idle between two chunks;
with more, each chunk comes later and is passed on later."""
WAITS = 12
"""Requests that peers keep until they have the chunk. They are counted apart, or they would leave
none for the chunks that only this node may fetch."""
SPARE_PRESSING, SPARE_SMALL = 1, 2
"""Requests to the origin beyond the usual number, for what a reader waits for, and for small files:
with a slow origin, these would wait for a large file's chunks that are on their way."""


class DownloadSlots:
    """Counts what is on its way. A copy on the node's own disk takes no slot."""

    def __init__(self, origin_slots: int) -> None:
        self._origin = origin_slots
        self._peers = TRANSFERS
        self._waits = WAITS

    def origin_free(self, *, small: bool, pressing: bool) -> bool:
        """Whether the origin may be asked. `small`: for a small file; `pressing`: a reader
        waits."""
        spare = SPARE_SMALL if small else SPARE_PRESSING if pressing else 0
        return self._origin > -spare

    @property
    def peers_free(self) -> bool:
        """Whether a peer may be asked for what it has."""
        return self._peers > 0

    @property
    def waits_free(self) -> bool:
        """Whether a peer may be asked for what it does not have yet."""
        return self._waits > 0

    def begin(self, step: Assignment) -> None:
        """The step takes a slot until `end`."""
        self._count(step, -1)

    def end(self, step: Assignment) -> None:
        self._count(step, 1)

    def _count(self, step: Assignment, change: int) -> None:
        if step.source == ORIGIN:
            self._origin += change
        elif step.waits:
            self._waits += change
        elif step.source != HERE:
            self._peers += change
