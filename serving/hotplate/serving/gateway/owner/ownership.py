"""What a gateway is to one deployment: its owner, or one that passes requests on to the owner."""

from __future__ import annotations

import logging
from dataclasses import replace

from hotplate.serving.gateway.fleet.backup_keeper import Keeper
from hotplate.serving.gateway.fleet.connection_backup import Bequest
from hotplate.serving.gateway.fleet.inherited_slots import Foreign
from hotplate.serving.gateway.fleet.membership import SLOTS, Claim, Fleet, file_name
from hotplate.serving.gateway.fleet.slot_record import TakenSlots
from hotplate.serving.gateway.owner.forwarded_route import forwarded_route
from hotplate.serving.gateway.protocol.routes import Route
from hotplate.serving.gateway.route_server import RouteServer

log = logging.getLogger(__name__)


class Standing:
    """Puts the deployment's route in force as it is for its owner, or for the others."""

    def __init__(
        self, fleet: Fleet, server: RouteServer, bequest: Bequest, keeper: Keeper | None
    ) -> None:
        """`bequest` is of the server's connections, `keeper` of what others have bequeathed."""
        self._fleet = fleet
        self._server = server
        self._route = server.route
        name = file_name(server.route.name)
        self._file = fleet.folder / f"{name}.{fleet.id}{SLOTS}"
        self._taken: TakenSlots | None = None
        """Kept from when it is owned until nothing of that time runs any more."""
        self._bequest = bequest
        self._foreign = Foreign(
            fleet.folder,
            name,
            self._file,
            keeper,
            abandon_s=server.dispatcher.limits.abandon_s,
        )
        self._claim: Claim | None = None
        self._owner = ""
        """Who owns it if this gateway does not; empty = nobody does."""
        self._settled_at = -1
        """The fleet's changes after which the one owned it that should; -1 = it did not."""

    @property
    def owned(self) -> bool:
        return self._claim is not None

    @property
    def owner(self) -> str:
        """The owner's id; empty = nobody owns it at this moment."""
        return self._fleet.id if self.owned else self._owner

    def follow(self, route: Route) -> None:
        """The route is another one."""
        self._route = route
        if not self._settle():
            self._put_in_force()

    def look(self) -> None:
        """Follows what has become of the other gateways."""
        self._bequest.follow()
        if not self._server.closing and self._settled_at != self._fleet.changes:
            self._settle()
        if self._taken is not None and not self.owned and not self._server.queue.in_flight:
            self._server.queue.granted.ledger = None
            self._taken.close(remove=True)
            self._taken = None

    def end(self) -> None:
        """The deployment is not served any more, or this gateway ends: somebody else may own it.

        Nothing is granted from here on; what runs keeps its slots.
        """
        if self._claim is not None:
            self._foreign.stop()
            self._claim.release()
            self._claim = None

    def close(self) -> None:
        """The process parts with it for good; what may run still stays written down."""
        self.end()
        nothing_runs = not self._server.queue.in_flight
        self._bequest.close(in_order=nothing_runs)
        if self._taken is not None:
            self._taken.close(remove=nothing_runs)

    # Inside

    def _settle(self) -> bool:
        """Owns it or not, as it should be; whether that has put the route in force."""
        changed = self._own_or_not()
        settled = self.owner != "" and self.owner == self._fleet.heir(self._route.name)
        self._settled_at = self._fleet.changes if settled else -1
        return changed

    def _own_or_not(self) -> bool:
        fleet, name = self._fleet, self._route.name
        mine = fleet.heir(name) == fleet.id
        if self._claim is not None:
            if not mine:
                log.info("%s: goes to gateway %s", name, fleet.heir(name))
                self._give_up()
            return not mine
        claim = fleet.claim(name) if mine else None
        if claim is not None:
            self._take(claim)
            return True
        owner = fleet.owner(name)
        if owner == self._owner:
            return False
        self._owner = owner
        self._put_in_force()
        return True

    def _take(self, claim: Claim) -> None:
        self._claim = claim
        if self._taken is None:
            self._taken = TakenSlots(self._file)
            self._server.queue.granted.ledger = self._taken
        self._foreign.watch(lambda: self._route, self._taken_of, self._put_in_force)
        self._put_in_force()

    def _taken_of(self, replica_id: str) -> int:
        """Slots of the replica that requests have which this gateway sent."""
        return sum(r.taken for r in self._server.queue.replicas if r.id == replica_id)

    def _give_up(self) -> None:
        """Grants nothing more, then lets another gateway own it."""
        assert self._claim is not None
        claim, self._claim = self._claim, None
        self._foreign.stop()
        self._owner = ""
        self._put_in_force()
        claim.release()

    def _put_in_force(self) -> None:
        if self._claim is None:
            socket = self._fleet.socket_of(self._owner) if self._owner else None
            self._server.follow(forwarded_route(self._route, socket))
            return
        foreign = self._foreign.slots
        replicas = [replace(r, foreign=foreign.get(r.id, 0)) for r in self._route.replicas]
        self._server.follow(replace(self._route, replicas=tuple(replicas)))
