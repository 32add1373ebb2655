"""Requests that come back from an owner of which nothing is heard any longer.

It may have sent them to a replica, or may still do so: what it said last is lost. Only our workers
know, and they begin with none of them from now on (`replica/inside/patches/begun.py`). Other
servers are not asked: they have no fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hotplate.serving.gateway.fleet.peer_queries import ask_back
from hotplate.serving.gateway.protocol.routes import ReplicaRoute

MOST = 500
"""So many are asked for at once, in one line of a request."""


class Recalls:
    """Those of one route."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: dict[bytes, Callable[[bool], None]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def ask(
        self, passed: bytes, replicas: Sequence[ReplicaRoute], done: Callable[[bool], None]
    ) -> None:
        """`done` is told whether one of the replicas has begun with it, or does not say."""
        if not self._asked:  # more come in this moment: the owner had them all
            self._loop.call_soon(self._send, replicas)
        self._asked[passed] = done

    # Inside

    def _send(self, replicas: Sequence[ReplicaRoute]) -> None:
        asked, self._asked = self._asked, {}
        task = self._loop.create_task(_tell(asked, replicas))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)


async def _tell(
    asked: dict[bytes, Callable[[bool], None]], replicas: Sequence[ReplicaRoute]
) -> None:
    workers = [replica.address for replica in replicas if replica.worker]
    passed = list(asked)
    for first in range(0, len(passed), MOST):
        some = passed[first : first + MOST]
        said = await asyncio.gather(*(ask_back(address, some) for address in workers))
        for one in some:
            asked[one](any(begun is None or one in begun for begun in said))
