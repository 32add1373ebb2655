"""The slots of a route's replicas, and which replica is next. Pure; every call takes constant time.

Open replicas lie in a row of groups by how many free slots they have; a grant or a release moves
one replica to the group beside. The next request goes to the replica with most free slots, among
equals to the one that has had as many for longest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit


class Replica:
    """One replica's slots."""

    __slots__ = (
        "adaptive",
        "answering",
        "concurrency",
        "draining",
        "foreign",
        "gone",
        "group",
        "id",
        "out",
        "taken",
    )

    def __init__(self, replica_id: str) -> None:
        self.id = replica_id
        self.concurrency = 0
        self.adaptive: AdaptiveLimit | None = None
        """Learns what its concurrency should be; None = it is set."""
        self.answering = 0
        """Of the slots taken, those whose answer has begun and lasts."""
        self.draining = False
        self.gone = False
        """No longer in the table; kept until its slots have come back."""
        self.taken = 0
        self.foreign = 0
        """Slots that other gateways' requests have."""
        self.out = ""
        """Why it gets nothing for now; empty = it is in."""
        self.group = -1
        """Its free slots while it may get requests; -1 = it may not."""

    @property
    def free(self) -> int:
        """Less than none after its concurrency was lowered."""
        return self.concurrency - self.taken - self.foreign

    @property
    def stalled(self) -> bool:
        """Whether every slot of it has an answer that goes on."""
        return not self.out and 0 < self.taken == self.answering and self.free <= 0

    @property
    def open(self) -> bool:
        """Whether the table gives it requests, though it may be out for a moment."""
        return not self.draining and self.concurrency > 0


class Ledger(Protocol):
    """Writes down which slots are taken, for when somebody else has to know."""

    def take(self, replica: Replica, now: float) -> None:
        """A slot of the replica was taken."""

    def give(self, replica: Replica, service_s: float) -> None:
        """A slot of the replica came back after that time; 0 = it is not known, or not usual."""


class Slots:
    """All replicas of a route that are open, draining, or gone with slots still taken."""

    def __init__(self) -> None:
        self.total = 0
        """Slots of the open replicas, free and taken."""
        self.ready = False
        """Whether any replica is open."""
        self._replicas: dict[str, Replica] = {}
        self._groups: list[OrderedDict[Replica, None]] = [OrderedDict()]
        """By free slots."""
        self._most = 0
        """No replica has more free slots than this."""

    @property
    def replicas(self) -> Collection[Replica]:
        return self._replicas.values()

    def take_over(self, table: Iterable[ReplicaRoute]) -> None:
        """What is named is in with what the table says; the rest drains."""
        named = {entry.id: entry for entry in table}
        for entry in named.values():
            replica = self._replicas.setdefault(entry.id, Replica(entry.id))
            replica.concurrency = _concurrency(replica, entry)
            replica.draining = entry.draining
            replica.foreign = entry.foreign
            replica.gone = False
        for replica in list(self._replicas.values()):
            if replica.id not in named:
                replica.draining = replica.gone = True
                self._forget_if_empty(replica)
            self._place(replica)
        self._sum_up()

    @property
    def learning(self) -> Iterator[Replica]:
        """The open replicas whose concurrency is learnt."""
        return (r for r in self._replicas.values() if r.adaptive is not None and r.open)

    @property
    def any_free(self) -> bool:
        return self._find() > 0

    def next(self) -> Replica | None:
        """The replica for a request that needs no slot."""
        return next(iter(self._groups[self._find()]), None)

    def take(self) -> Replica | None:
        """A slot of the replica that the next request goes to; None = there is none free."""
        groups = self._groups
        group = self._most
        if not groups[group]:
            group = self._find()
        if not group:
            return None
        replica, _ = groups[group].popitem(last=False)
        replica.taken += 1
        replica.group = group = group - 1
        groups[group][replica] = None
        return replica

    def give(self, replica: Replica) -> None:
        """One slot of it back."""
        replica.taken -= 1
        group = replica.group
        if 0 <= group < replica.free:
            del self._groups[group][replica]
            replica.group = group = group + 1
            self._groups[group][replica] = None
            if group > self._most:
                self._most = group
        elif replica.gone:
            self._forget_if_empty(replica)

    def resize(self, replica: Replica) -> None:
        """It has as many slots now as its limit says."""
        adaptive = replica.adaptive
        if adaptive is not None and replica.concurrency != adaptive.limit:
            replica.concurrency = adaptive.limit
            self._place(replica)
            self._sum_up()

    def outgrow_stalls(self, now: float) -> None:
        """Somebody waits: a replica that learns, and is stalled, may have more slots."""
        for replica in list(self.learning):
            adaptive = replica.adaptive
            if adaptive is not None and replica.stalled and adaptive.stalled(now):
                self.resize(replica)

    def passes_on(self, replica: Replica) -> bool:
        """Whether a slot of it that comes back goes to the next request at once: then it need
        not be given and taken. Where it learns, it may have another number by then."""
        return (
            replica.adaptive is None
            and replica.group == 0
            and replica.free >= 0
            and not self.any_free
        )

    # Replicas that are out

    def put_out(self, replica_id: str, reason: str) -> None:
        """It gets nothing until it is let in."""
        self._set_out(replica_id, reason)

    def let_in(self, replica_id: str) -> None:
        """It may get requests again."""
        self._set_out(replica_id, "")

    def _set_out(self, replica_id: str, reason: str) -> None:
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.out = reason
            self._place(replica)

    # Inside

    def _sum_up(self) -> None:
        opened = [replica for replica in self._replicas.values() if replica.open]
        self.ready = bool(opened)
        self.total = sum(replica.concurrency for replica in opened)

    def _find(self) -> int:
        """The most free slots that a replica has."""
        most = self._most
        while most and not self._groups[most]:
            most -= 1
        self._most = most
        return most

    def _place(self, replica: Replica) -> None:
        """Moves it to the group of its free slots, to that group's end."""
        group = -1
        if replica.open and not replica.out:
            group = max(0, replica.free)
        if group == replica.group:
            return
        if replica.group >= 0:
            del self._groups[replica.group][replica]
        replica.group = group
        if group < 0:
            return
        while replica.concurrency >= len(self._groups):
            self._groups.append(OrderedDict())
        self._groups[group][replica] = None
        self._most = max(self._most, group)

    def _forget_if_empty(self, replica: Replica) -> None:
        if replica.gone and not replica.taken:
            self._replicas.pop(replica.id, None)


def _concurrency(replica: Replica, entry: ReplicaRoute) -> int:
    """What the table says; where the replica learns, what it has learnt since it came."""
    if not entry.learns:
        replica.adaptive = None
        return entry.concurrency
    if replica.adaptive is None:
        replica.adaptive = AdaptiveLimit(entry.concurrency, entry.least)
    return replica.adaptive.limit
