"""Slots that requests of other gateways have: a new owner must not grant them a second time.

A living former owner counts its slots down itself. One that was killed has left handlers behind.
Our worker says how many handlers run; those of WebSockets, whose callers went with the gateway,
count for 10 s from then on (`abandoned.py`). Any other server's handlers show on the connections
that the former owner has backed up (`backup_keeper.py`). Without these they cannot be counted, so
the slots are held back for as long as the slowest request took lately, from the last grant on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hotplate.serving.gateway.fleet.backup_keeper import BackupKeeper
from hotplate.serving.gateway.fleet.membership import SLOTS, is_held
from hotplate.serving.gateway.fleet.peer_queries import Handlers, ask_running
from hotplate.serving.gateway.fleet.slot_record import Taken, key_of, read_taken
from hotplate.serving.gateway.protocol.routes import TASKS, ReplicaRoute, Route

log = logging.getLogger(__name__)

LOOK_S = 0.02
"""How often it is checked whether slots have come back, while there are any."""
AGAIN_S = 1.0
"""How long a worker's figures count; after that it gets no requests until it was asked again."""
MARGIN = 1.5
MARGIN_S = 0.05
"""A handler may take this times as long as the slowest one lately, and this much longer."""


class InheritedSlots:
    """Counts the inherited slots of one deployment. `changed` is called when `slots` has
    changed."""

    def __init__(
        self,
        folder: Path,
        deployment: str,
        own: Path,
        keeper: BackupKeeper | None = None,
        *,
        abandon_s: float,
    ) -> None:
        """`deployment` as in file names; `own` is this gateway's own file."""
        self.slots: Mapping[str, int] = {}
        """Slots by replica id; only replicas with some."""
        self._folder = folder
        self._deployment = deployment
        self._own = own
        self._keeper = keeper
        self._abandon_s = abandon_s
        self._killed_at: dict[str, float] = {}
        """When each gateway was first seen to be dead, by its id."""
        self._running: dict[str, tuple[Handlers | None, float]] = {}
        """What each worker last reported (None: it cannot say) and when, by replica id."""
        self._watching: asyncio.Task[None] | None = None

    def look(self, route: Route, now: float) -> bool:
        """Counts again; returns whether there may be any."""
        slots: dict[str, int] = {}
        files = self._files()
        for path in files:
            held = is_held(path)
            with suppress(OSError):
                taken = read_taken(path)
                gateway = path.name[len(self._deployment) + 1 : -len(SLOTS)]
                remaining = self._still_taken(taken, route, now, "" if held else gateway)
                for replica, count in remaining.items():
                    slots[replica] = slots.get(replica, 0) + count
                if not held and not remaining:
                    path.unlink(missing_ok=True)
                    self._killed_at.pop(gateway, None)
                    if self._keeper is not None:
                        self._keeper.forget(gateway, self._deployment)
        self.slots = slots
        return bool(files)

    def watch(
        self,
        route: Callable[[], Route],
        taken: Callable[[str], int],
        changed: Callable[[], None],
    ) -> None:
        """Checks again and again until there are none; `taken` returns this gateway's own slots."""
        self.stop()
        self._running.clear()
        loop = asyncio.get_running_loop()
        if self.look(route(), loop.time()):
            log.info("%s: slots that other gateways have taken: %s", route().name, self.slots)
            self._watching = loop.create_task(self._follow(route, taken, changed))

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _follow(
        self,
        route: Callable[[], Route],
        taken: Callable[[str], int],
        changed: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        more = True
        while more:
            await asyncio.sleep(LOOK_S)
            await self._ask(route().replicas, taken)
            before = self.slots
            more = self.look(route(), loop.time())
            if self.slots != before:
                changed()
        log.info("%s: all slots are this gateway's", route().name)

    def _files(self) -> list[Path]:
        found = self._folder.glob(f"{self._deployment}.*{SLOTS}")
        return [path for path in found if path != self._own]

    def _still_taken(
        self, taken: Taken, route: Route, now: float, killed: str
    ) -> Mapping[str, int]:
        """The slots of one gateway that may still be taken; `killed` is its id if it is dead."""
        remaining: dict[str, int] = {}
        quiet_s = taken.slowest_s * MARGIN + MARGIN_S if taken.slowest_s else route.timeout_s
        killed_at = self._killed_at.setdefault(killed, now) if killed else now
        backup = None
        if killed and self._keeper is not None:
            backup = self._keeper.of(killed, self._deployment)
        for replica in route.replicas:
            count, at = taken.slots.get(key_of(replica.id), (0, 0.0))
            if killed and count:
                handlers, asked_at = self._running.get(replica.id, (Handlers(), 0.0))
                if replica.worker and handlers is not None:
                    fresh = now - asked_at < AGAIN_S
                    waits = now - killed_at < self._abandon_s
                    running = _of_route(handlers, route) - (0 if waits else handlers.websockets)
                    count = min(count, running) if fresh else replica.concurrency
                else:
                    shown = 0
                    if backup is not None:
                        most_s = max(quiet_s, route.timeout_s)
                        shown, count = backup.still_taken(replica.id, count, now, quiet_s, most_s)
                    recent = now - quiet_s < at <= now  # a time to come is of before a reboot
                    count = shown + count if recent else shown
            if count:
                remaining[replica.id] = count
        return remaining

    async def _ask(self, replicas: Iterable[ReplicaRoute], taken: Callable[[str], int]) -> None:
        """Asks the workers, at times when only requests of other gateways can run there."""
        asked = [r for r in replicas if r.worker and r.id in self.slots and not taken(r.id)]
        counted = await asyncio.gather(*(ask_running(replica.address) for replica in asked))
        now = asyncio.get_running_loop().time()
        for replica, handlers in zip(asked, counted, strict=True):
            if not taken(replica.id):
                self._running[replica.id] = handlers, now


def _of_route(handlers: Handlers, route: Route) -> int:
    """The handlers in a worker whose slots are the route's."""
    if route.name.endswith(TASKS):
        return handlers.tasks + handlers.websockets
    return handlers.running - handlers.tasks if route.tasks_apart else handlers.running
