"""One deployment while it is awake: what gateways and replicas do, added up step by step; pure.

Times are loop seconds. A replica's seconds are starting, busy or idle ones, and none is counted
twice or left out, so they add up to what replicas lived. How long slots were taken is the gateway's
to say, with its next report; until then a replica that had one taken when it was looked at last
counts as busy, and the report puts right what that was wrong by.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from hotplate.deploy.engine import ReplicaUsage
from hotplate.platform.series.points import Point, bucket
from hotplate.serving.gateway.errors import ReplicaFailed
from hotplate.serving.gateway.protocol.route_counts import Buckets, RouteCounts

RATE_S = 10.0
"""Over how long rates are taken."""


class Use(Enum):
    """What a replica that has its resources is there for."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    DRAINING = "draining"


class Seen(NamedTuple):
    """A replica that has its resources, as it was seen."""

    id: str
    service: str
    use: Use
    is_busy: bool = False
    """Whether a slot of it is taken."""
    gpus: float = 0.0
    price_h: float | None = None
    """Of an hour; None = its size has none."""
    ready_at: float | None = None
    """Unix seconds."""


@dataclass
class _Life:
    """A replica's seconds in the step that goes on."""

    seen: Seen
    busy_s: float = 0.0
    idle_s: float = 0.0
    credited_s: float = 0.0
    """Of the time since the gateway's last word, what was taken for busy."""
    cpu_s: float | None = None
    """As read last; None = it was not, and what it has used before is not of this time."""


@dataclass
class Track:
    """Of one deployment, or version of a canary."""

    began_at: float
    """Unix seconds: who was ready before is no cold start of this time."""
    opened_at: float
    """When the step began that goes on."""
    gpu_s: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """Of all steps that have ended, by service and use."""
    _at: float = 0.0
    _wanted: int = 0
    _in_flight: int = 0
    _queued: int = 0
    _lives: dict[str, _Life] = field(default_factory=dict)
    _point: Point = field(default_factory=dict)
    _ready: set[tuple[str, float]] = field(default_factory=set)
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    """When how many requests and errors came, for rates."""
    _looked: bool = False
    """Whether it was looked at: who comes later has begun since then."""
    _slept: bool = True
    """Whether the last step that has ended said that it sleeps."""

    def __post_init__(self) -> None:
        self._at = self.opened_at

    @property
    def is_awake(self) -> bool:
        """Whether there is anything to tell of the step that goes on, or that it has ended."""
        there = self._lives or self._wanted or self._in_flight or self._queued
        return bool(there or self._point or not self._slept)

    def wake(self, opened_at: float) -> None:
        """It has slept, and may not from now on, in a step that began then."""
        self._open(opened_at)

    def look(
        self, replicas: Iterable[Seen], wanted: int, in_flight: int, queued: int, now: float
    ) -> None:
        """It is so from `now` on."""
        self._advance(now)
        seen = {replica.id: replica for replica in replicas}
        for name in self._lives.keys() - seen.keys():
            self._settle(self._lives.pop(name))
        for name, replica in seen.items():
            self._note_start(replica)
            if name in self._lives:
                self._lives[name].seen = replica
            else:
                self._lives[name] = _Life(replica, cpu_s=0.0 if self._looked else None)
        self._looked = True
        self._wanted, self._in_flight, self._queued = wanted, in_flight, queued
        self._note_most()

    def count(self, counts: RouteCounts, now: float, *, is_entry: bool) -> None:
        """What a gateway has counted on one of its routes since it said so last: on that of the
        entry service requests, on each how long replicas were busy."""
        self._advance(now)
        for name, busy_s in counts.busy_s.items():
            if name in self._lives:
                _put_right(self._lives[name], busy_s)
        if not is_entry:
            return
        died = counts.refusals.get(ReplicaFailed.code, 0)
        refusals = sum(counts.refusals.values())
        requests, errors = counts.answered + refusals, counts.failed + died
        self._add("requests", requests)
        self._add("errors", errors)
        self._add("refused", refusals - died)
        self._add_times("wait_s", counts.waits)
        self._add_times("first_byte_s", counts.first_bytes)
        self._add_times("answer_s", counts.answers)
        if requests:
            self._recent.append((now, requests, errors))
            self._forget_older(now)

    def use(self, usage: Mapping[str, ReplicaUsage]) -> None:
        """What its replicas have used, as read for the end of this step."""
        for name, life in self._lives.items():
            used = usage.get(name, ReplicaUsage())
            if used.cpu_s is not None:
                since = used.cpu_s if life.cpu_s is None else life.cpu_s
                self._know("cpu_s", max(0.0, used.cpu_s - since))
                life.cpu_s = used.cpu_s
            if used.memory_bytes is not None:
                self._know("memory_bytes", used.memory_bytes)
            if used.gpu_share is not None:
                self._know("gpu_share_s", used.gpu_share * life.seen.gpus)
                self._know("gpu_known_s", life.seen.gpus)
            if used.gpu_memory_bytes is not None:
                self._know("gpu_memory_bytes", used.gpu_memory_bytes)

    def close(self, now: float) -> Point | None:
        """What the step was that ends now; None = there is nothing to tell, it sleeps."""
        if not self.is_awake:
            self._open(now)
            return None
        self._advance(now)
        for life in self._lives.values():
            self._settle(life)
        point = self._point
        self._slept = not (self._lives or self._wanted or self._in_flight or self._queued)
        point |= {"seen_s": now - self.opened_at, "awake": 0 if self._slept else 1}
        self._open(now)
        return point

    def so_far(self, now: float) -> Point | None:
        """The same of the step that goes on; None = there is nothing to tell."""
        if not self.is_awake:
            return None
        self._advance(now)
        point = dict(self._point)
        for life in self._lives.values():
            for name, value in _seconds(life).items():
                point[name] = point.get(name, 0) + value
        return point | {"seen_s": now - self.opened_at, "awake": 1}

    def rates(self, now: float) -> tuple[float, float]:
        """Requests and errors in a second, of the last `RATE_S`."""
        self._forget_older(now)
        requests = sum(count for _, count, _ in self._recent)
        errors = sum(count for _, _, count in self._recent)
        return requests / RATE_S, errors / RATE_S

    def _forget_older(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - RATE_S:
            self._recent.popleft()

    def gpus(self) -> dict[str, float]:
        """How many its replicas have now, by what they are there for."""
        found: defaultdict[str, float] = defaultdict(float)
        for life in self._lives.values():
            found[_use(life.seen)] += life.seen.gpus
        return found

    def _open(self, now: float) -> None:
        self._point = {}
        self._at = self.opened_at = now
        self._note_most()

    def _advance(self, now: float) -> None:
        lasted_s, self._at = max(0.0, now - self._at), max(self._at, now)
        if not lasted_s:
            return
        self._add("wanted_s", self._wanted * lasted_s)
        for life in self._lives.values():
            seen = life.seen
            if seen.price_h is not None:
                self._know("cost", seen.price_h / 3600 * lasted_s)
            if seen.use is Use.STARTING:
                self._spend(seen, "starting", lasted_s)
                continue
            if seen.use is not Use.UNREADY:
                self._add(f"{seen.use.value}_s", lasted_s)
            if seen.is_busy:
                life.busy_s += lasted_s
                life.credited_s += lasted_s
            else:
                life.idle_s += lasted_s

    def _settle(self, life: _Life) -> None:
        """The step of a replica has ended: what was counted of it stays as it is."""
        self._spend(life.seen, "busy", life.busy_s)
        self._spend(life.seen, "idle", life.idle_s)
        life.busy_s = life.idle_s = 0.0

    def _spend(self, seen: Seen, use: str, seconds: float) -> None:
        self._add(f"replica_s.{use}", seconds)
        if seen.gpus and seconds:
            self._add(f"gpu_s.{use}", seconds * seen.gpus)
            self.gpu_s[seen.service, use] += seconds * seen.gpus

    def _note_start(self, replica: Seen) -> None:
        at = replica.ready_at
        if at is None or (replica.id, at) in self._ready:
            return
        self._ready = {one for one in self._ready if one[0] in self._lives}
        self._ready.add((replica.id, at))
        if at >= self.began_at:
            self._add("cold_starts", 1)

    def _note_most(self) -> None:
        for name, there in (("in_flight", self._in_flight), ("queued", self._queued)):
            if there > self._point.get(name, 0):
                self._point[name] = there

    def _add_times(self, name: str, buckets: Buckets) -> None:
        for number, count in buckets:
            self._add(bucket(name, number), count)

    def _add(self, name: str, value: float) -> None:
        if value:
            self._point[name] = self._point.get(name, 0) + value

    def _know(self, name: str, value: float) -> None:
        """The same of what is not known while it is not there."""
        self._point[name] = self._point.get(name, 0) + value


def _use(seen: Seen) -> str:
    """Which of the parts of its seconds go on."""
    if seen.use is Use.STARTING:
        return "starting"
    return "busy" if seen.is_busy else "idle"


def _put_right(life: _Life, busy_s: float) -> None:
    """Since the last report it was busy for so long, whatever it was taken for."""
    wrong_s, life.credited_s = busy_s - life.credited_s, 0.0
    moved_s = min(wrong_s, life.idle_s) if wrong_s > 0 else max(wrong_s, -life.busy_s)
    life.busy_s += moved_s
    life.idle_s -= moved_s


def _seconds(life: _Life) -> Point:
    found = {"replica_s.busy": life.busy_s, "replica_s.idle": life.idle_s}
    if life.seen.gpus:
        found |= {f"gpu_s.{name[10:]}": value * life.seen.gpus for name, value in found.items()}
    return {name: value for name, value in found.items() if value}
