"""What a gateway is to one deployment: its owner, or one that passes requests on to the owner."""

from __future__ import annotations

import logging
from dataclasses import replace

from hotplate.serving.gateway.fleet.backup_keeper import BackupKeeper
from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.fleet.inherited_slots import InheritedSlots
from hotplate.serving.gateway.fleet.members import FleetMembers, OwnerLock, file_name
from hotplate.serving.gateway.fleet.membership import SLOTS
from hotplate.serving.gateway.fleet.slot_record import TakenSlots
from hotplate.serving.gateway.owner.forwarded_route import forwarded_route
from hotplate.serving.gateway.protocol.routes import Route
from hotplate.serving.gateway.route_server import RouteServer

log = logging.getLogger(__name__)


class Ownership:
    """Applies the deployment's route as it is for its owner, or for the others."""

    def __init__(
        self,
        fleet: FleetMembers,
        server: RouteServer,
        backup: ConnectionBackup,
        keeper: BackupKeeper | None,
    ) -> None:
        """`backup` has the server's connections, `keeper` those of other gateways."""
        self._fleet = fleet
        self._server = server
        self._route = server.route
        name = file_name(server.route.name)
        self._file = fleet.folder / f"{name}.{fleet.id}{SLOTS}"
        self._taken: TakenSlots | None = None
        """Kept from when the deployment is owned until nothing of that time runs any longer."""
        self._backup = backup
        self._inherited = InheritedSlots(
            fleet.folder,
            name,
            self._file,
            keeper,
            abandon_s=server.dispatcher.limits.abandon_s,
        )
        self._lock: OwnerLock | None = None
        self._owner = ""
        """The owner if this gateway is not; empty = there is none."""
        self._address = ""
        """Where requests are passed on to."""
        self._settled_at = -1
        """The fleet's `changes` as of which the right gateway owned it; -1 = that was not so."""

    @property
    def owned(self) -> bool:
        return self._lock is not None

    @property
    def owner(self) -> str:
        """The owner's id; empty = no gateway owns it at this moment."""
        return self._fleet.id if self.owned else self._owner

    def follow(self, route: Route) -> None:
        """The route has changed."""
        self._route = route
        if not self._update():
            self._apply()

    def look(self) -> None:
        """Follows changes of the other gateways."""
        self._backup.follow()
        if not self._server.closing and self._settled_at != self._fleet.changes:
            self._update()
        if self._taken is not None and not self.owned and not self._server.queue.in_flight:
            self._server.queue.granted.slot_recorder = None
            self._taken.close(remove=True)
            self._taken = None

    def end(self) -> None:
        """The deployment is no longer served, or this gateway ends: another gateway may own it.
        Nothing is granted from now on; what runs keeps its slots."""
        if self._lock is not None:
            self._inherited.stop()
            self._lock.release()
            self._lock = None

    def close(self) -> None:
        """The process gives up the deployment for good; the file still says what may run."""
        self.end()
        nothing_runs = not self._server.queue.in_flight
        self._backup.close(in_order=nothing_runs)
        if self._taken is not None:
            self._taken.close(remove=nothing_runs)

    # Inside

    def _update(self) -> bool:
        """Takes or gives up the ownership if needed; returns whether that has applied the route."""
        before, relays = self._owner, self._server.dispatcher.pool(self._address)
        changed = self._update_owner()
        if relays is not None and self._fleet.is_silent(before):
            relays.abort()  # what was passed on comes back, unless its handler has begun
        settled = self.owner != "" and self.owner == self._fleet.rightful_owner(self._route.name)
        self._settled_at = self._fleet.changes if settled else -1
        return changed

    def _update_owner(self) -> bool:
        fleet, name = self._fleet, self._route.name
        mine = fleet.rightful_owner(name) == fleet.id
        if self._lock is not None:
            if not mine:
                log.info("%s: goes to gateway %s", name, fleet.rightful_owner(name))
                self._give_up()
            return not mine
        lock = fleet.lock_owner(name) if mine else None
        if lock is not None:
            self._take(lock)
            return True
        owner = fleet.owner(name)
        if owner == self._owner:
            return False
        self._owner = owner
        self._apply()
        return True

    def _take(self, lock: OwnerLock) -> None:
        self._lock = lock
        if self._taken is None:
            self._taken = TakenSlots(self._file)
            self._server.queue.granted.slot_recorder = self._taken
        self._inherited.watch(lambda: self._route, self._taken_of, self._apply)
        self._apply()

    def _taken_of(self, replica_id: str) -> int:
        """Slots of the replica that this gateway's requests have."""
        return sum(r.taken for r in self._server.queue.replicas if r.id == replica_id)

    def _give_up(self) -> None:
        """Grants nothing more, then lets another gateway own it."""
        assert self._lock is not None
        lock, self._lock = self._lock, None
        self._inherited.stop()
        self._owner = ""
        self._apply()
        lock.release()

    def _apply(self) -> None:
        if self._lock is None:
            self._address = self._fleet.address_of(self._owner) if self._owner else ""
            self._server.follow(forwarded_route(self._route, self._address))
            return
        self._address = ""
        foreign = self._inherited.slots
        replicas = [replace(r, foreign=foreign.get(r.id, 0)) for r in self._route.replicas]
        self._server.follow(replace(self._route, replicas=tuple(replicas)))
