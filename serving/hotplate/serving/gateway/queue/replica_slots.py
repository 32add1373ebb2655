"""The slots of a route's replicas, and which replica is next. Pure; every call takes constant time.

Open replicas are grouped by their number of free slots; a grant or a release moves one replica to
the neighbouring group. The next request goes to the replica with most free slots, and among equals
to the one that has had that many for longest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Protocol

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit
from hotplate.serving.gateway.telemetry.version_answers import Counts, VersionAnswers

IDLE: Final = -1.0


class Replica:
    """One replica's slots."""

    __slots__ = (
        "adaptive",
        "answers",
        "busy_s",
        "busy_since",
        "concurrency",
        "draining",
        "ejection_reason",
        "gone",
        "group",
        "id",
        "responding",
        "taken",
        "taken_elsewhere",
    )

    def __init__(self, replica_id: str) -> None:
        self.id = replica_id
        self.concurrency = 0
        self.adaptive: AdaptiveLimit | None = None
        """Learns what its concurrency should be; None = the route sets it."""
        self.answers: Counts | None = None
        """The counts of its version; None = its answers are not counted."""
        self.responding = 0
        """Slots whose response has begun and has not ended."""
        self.draining = False
        self.gone = False
        """No longer in the table; kept until its slots have come back."""
        self.taken = 0
        self.taken_elsewhere = 0
        """Slots that requests of other gateways have."""
        self.ejection_reason = ""
        """Why it gets no requests for now; empty = it is not ejected."""
        self.group = -1
        """The number of its free slots; -1 = it may get no requests."""
        self.busy_since = IDLE
        """Since when a slot of it at least is taken; `IDLE` = none is."""
        self.busy_s = 0.0
        """How long that was so before, as far as `take_busy_s` has not told it."""

    @property
    def free(self) -> int:
        """Free slots; negative after its concurrency was lowered."""
        return self.concurrency - self.taken - self.taken_elsewhere

    def note_taken(self, now: float) -> None:
        """A ticket has one of its slots."""
        if self.busy_since == IDLE:
            self.busy_since = now

    def note_free(self, now: float) -> None:
        """A slot may have come back."""
        if not self.taken and self.busy_since != IDLE:
            self.busy_s += now - self.busy_since
            self.busy_since = IDLE

    def take_busy_s(self, now: float) -> float:
        """How long it was busy since the last call."""
        busy_s, self.busy_s = self.busy_s, 0.0
        if self.busy_since != IDLE:
            busy_s += now - self.busy_since
            self.busy_since = now
        return busy_s

    @property
    def stalled(self) -> bool:
        """Whether each of its slots has a response that has begun and goes on."""
        return not self.ejection_reason and 0 < self.taken == self.responding and self.free <= 0

    @property
    def open(self) -> bool:
        """Whether the table lets it have requests; it may still be ejected for a moment."""
        return not self.draining and self.concurrency > 0


class SlotRecorder(Protocol):
    """Records which slots are taken, for a later owner of the route."""

    def take(self, replica: Replica, now: float) -> None:
        """A slot of the replica was taken."""

    def release(self, replica: Replica, service_s: float) -> None:
        """A slot of the replica came back after `service_s`; 0 = unknown, or not typical."""


class Slots:
    """All replicas of a route: open, draining, or gone with slots still taken."""

    def __init__(self) -> None:
        self.total = 0
        """Slots of the open replicas, free and taken."""
        self.ready = False
        """Whether any replica is open."""
        self.answers = VersionAnswers()
        self._replicas: dict[str, Replica] = {}
        self._groups: list[OrderedDict[Replica, None]] = [OrderedDict()]
        """The index is the number of free slots."""
        self._most = 0
        """No replica has more free slots than this."""

    @property
    def replicas(self) -> Collection[Replica]:
        return self._replicas.values()

    def update(self, table: Iterable[ReplicaRoute]) -> None:
        """Replaces the table. Replicas that it does not name drain."""
        named = {entry.id: entry for entry in table}
        for entry in named.values():
            replica = self._replicas.setdefault(entry.id, Replica(entry.id))
            replica.concurrency = _concurrency(replica, entry)
            replica.draining = entry.draining
            replica.taken_elsewhere = entry.foreign
            replica.answers = self.answers.of(entry.version)
            replica.gone = False
        for replica in list(self._replicas.values()):
            if replica.id not in named:
                replica.draining = replica.gone = True
                self._forget_if_empty(replica)
            self._place(replica)
        self.answers.keep({entry.version for entry in named.values()})
        self._update_totals()

    @property
    def learning(self) -> Iterator[Replica]:
        """The open replicas whose concurrency is learnt."""
        return (r for r in self._replicas.values() if r.adaptive is not None and r.open)

    @property
    def any_free(self) -> bool:
        return self._find() > 0

    def most_free(self) -> Replica | None:
        """The replica for a request that needs no slot."""
        return next(iter(self._groups[self._find()]), None)

    def take(self) -> Replica | None:
        """Takes a slot of the replica with most free ones; None = no slot is free."""
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

    def release(self, replica: Replica) -> None:
        """A slot of the replica comes back."""
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
        """Gives the replica as many slots as its adaptive limit allows."""
        adaptive = replica.adaptive
        if adaptive is not None and replica.concurrency != adaptive.limit:
            replica.concurrency = adaptive.limit
            self._place(replica)
            self._update_totals()

    def grow_stalled(self, now: float) -> None:
        """Requests wait: a stalled replica with an adaptive limit may get more slots."""
        for replica in list(self.learning):
            adaptive = replica.adaptive
            if adaptive is not None and replica.stalled and adaptive.grow_if_stalled(now):
                self.resize(replica)

    def can_hand_over(self, replica: Replica) -> bool:
        """Whether a slot of the replica that comes back certainly goes to the next request, so that
        the two calls `release` and `take` can be saved. An adaptive limit may change in between."""
        return (
            replica.adaptive is None
            and replica.group == 0
            and replica.free >= 0
            and not self.any_free
        )

    # Ejection

    def eject(self, replica_id: str, reason: str) -> None:
        """The replica gets no requests until it is restored."""
        self._set_ejection_reason(replica_id, reason)

    def restore(self, replica_id: str) -> None:
        """The replica may get requests again."""
        self._set_ejection_reason(replica_id, "")

    def _set_ejection_reason(self, replica_id: str, reason: str) -> None:
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.ejection_reason = reason
            self._place(replica)

    # Inside

    def _update_totals(self) -> None:
        opened = [replica for replica in self._replicas.values() if replica.open]
        self.ready = bool(opened)
        self.total = sum(replica.concurrency for replica in opened)

    def _find(self) -> int:
        """The most free slots that any replica has."""
        most = self._most
        while most and not self._groups[most]:
            most -= 1
        self._most = most
        return most

    def _place(self, replica: Replica) -> None:
        """Moves the replica to the end of the group of its number of free slots."""
        group = -1
        if replica.open and not replica.ejection_reason:
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
    """What the table says, or what the replica's adaptive limit has learnt so far."""
    if not entry.learns:
        replica.adaptive = None
        return entry.concurrency
    if replica.adaptive is None:
        replica.adaptive = AdaptiveLimit(entry.concurrency, entry.least)
    return replica.adaptive.limit
