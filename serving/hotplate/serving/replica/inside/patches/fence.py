"""What a worker lets begin, whoever sends it; runs in the replica (Python >= 3.9).

A gateway says with each request for which replica it is and how many handlers may run there at a
time. Gateways that do not see each other each count their own requests only, and an address may
have been given to another replica since a gateway learnt it. So the worker counts for all of them:

* What is for another replica goes back at once.
* What a neighbour on the network sends, without a gateway's word, is refused.
* What finds all slots taken waits here for `WAIT_S`, in the order in which it came. Then it goes
  back, because another replica may have a slot by now. What its gateway cannot send again `stays`.

What goes back never reaches the application. The gateway is told by an interim answer that no
application can send, and ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from hotplate.serving.replica.inside.patches.running import SLOT, TASK_SLOT, Running

REPLICA = b"hotplate-replica"
"""`UID`, `UID SLOTS`, and behind that `tasks` (the slots are those of kept tasks) and `stays`; only
a gateway sends it."""
FULL = b"HTTP/1.1 100 Full\r\n\r\n"
ELSEWHERE = b"HTTP/1.1 100 Elsewhere\r\n\r\n"
PROBED = ("/readyz", "/livez")
WAIT_S = 1.0
LOOK_S = 0.005
"""How often the request that is next looks for a slot: another process may have given it up."""
ABANDON_S = 9.0
"""A WebSocket's handler keeps its slot for this long after its connection has ended: a little less
than at the gateway (`Limits.abandon_s`), whose next request then finds it free."""
HANGUP_S = 0.5
"""How often it is looked whether it has."""


class Permit(NamedTuple):
    """For whom a gateway has sent a request, and beside how many others it may begin."""

    uid: bytes
    slots: int = 0
    """0 = it takes none, or their number is not known."""
    is_task: bool = False
    stays: bool = False


class Slot:
    """One that a handler has."""

    def __init__(self, running: Running, kind: int) -> None:
        self._running = running
        self._kind = kind
        self._taken = True

    def free(self) -> None:
        """Gives it up; a second call does nothing."""
        if self._taken:
            self._taken = False
            self._running.give_back(self._kind)

    async def free_when_abandoned(self, transport: Any) -> None:
        """Gives up a WebSocket's, whose handler may never look whether its caller is there."""
        while not transport.is_closing():  # noqa: ASYNC110 - nobody tells it
            await asyncio.sleep(HANGUP_S)
        await asyncio.sleep(ABANDON_S)
        self.free()


class Fence:
    """What may begin in one process of a replica."""

    def __init__(self, running: Running, uid: str = "") -> None:
        """Without a `uid` nobody says which replica this is, and it takes what comes."""
        self._running = running
        self._uid = uid.encode()
        self._lines: dict[int, asyncio.Lock] = {}
        """Those who wait for a slot, by its kind: who has the lock is next."""

    def is_elsewhere(self, permit: Permit) -> bool:
        """Whether the request is for another replica."""
        return self._uid not in (b"", permit.uid)

    def is_bypassed(self, scope: Any, peer: Any) -> bool:
        """Whether a request without a permit has come over a network, past queue, slots and
        tokens of the gateways. Whoever starts replicas asks only whether they are ready or live;
        what comes from its own machine or pod comes from there. `peer` is the other end of its
        connection: a Unix socket's has no host."""
        host = peer[0] if isinstance(peer, tuple) else ""
        if not self._uid or not host or host.startswith("127.") or host == "::1":
            return False
        return not (scope.get("method") == "GET" and scope["path"].endswith(PROBED))

    async def enter(self, permit: Permit, has_left: Callable[[], bool]) -> Slot | None:
        """A slot; None = it goes back, or its caller has left."""
        kind = TASK_SLOT if permit.is_task else SLOT
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = asyncio.Lock()
        if not line.locked() and self._running.take(kind, permit.slots):
            return Slot(self._running, kind)
        until = _now() + WAIT_S
        async with line:
            while not has_left():
                if self._running.take(kind, permit.slots):
                    return Slot(self._running, kind)
                if _now() >= until and not permit.stays:
                    break
                await asyncio.sleep(LOOK_S)
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()


def take_permit(scope: Any) -> Permit | None:
    """Takes a gateway's permit out of a request, as it is none of the application's business."""
    headers = scope["headers"]
    for place in range(len(headers) - 1, -1, -1):
        if headers[place][0] == REPLICA:
            uid, *more = headers.pop(place)[1].split()
            slots = int(more[0]) if more else 0
            return Permit(uid, slots, b"tasks" in more, b"stays" in more)
    return None
