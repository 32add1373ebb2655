"""What our worker is told with each request, so that it can refuse to begin it. Pure.

The worker's side is `replica/inside/patches/fence.py`: it lets no more handlers run than it has
slots, whichever gateways send, and takes nothing that is for another replica.
"""

from __future__ import annotations

from typing import Final

from hotplate.serving.gateway.protocol.routes import TASKS, ReplicaRoute

NO_LINE: Final = b""
ANOTHER: Final = "another replica answers at its address"


class FenceLines:
    """The lines that go to one replica; each begins with the end of the line before."""

    __slots__ = ("_slotless", "_staying", "_usual")

    def __init__(self, replica: ReplicaRoute, route: str) -> None:
        """The replica as the table of a route of that name has it."""
        self._slotless = self._usual = self._staying = NO_LINE
        if not replica.worker or not replica.uid:
            return
        self._slotless = self._usual = self._staying = _line(replica.uid)
        if replica.learns:  # their number is found by trying, and no promise
            return
        slots = f"{replica.uid} {replica.concurrency}"
        if route.endswith(TASKS):
            slots += " tasks"
        self._usual, self._staying = _line(slots), _line(f"{slots} stays")

    def line(self, *, needs_slot: bool, may_return: bool) -> bytes:
        """The line of a request; empty = the server is not our worker, or does not know its name.
        One that cannot be sent again waits at the worker until there is a slot (`may_return`)."""
        if not needs_slot:
            return self._slotless
        return self._usual if may_return else self._staying


def _line(value: str) -> bytes:
    return b"\r\nHotplate-Replica: %b" % value.encode()
