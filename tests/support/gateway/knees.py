"""Replicas with a knee, simulated: what they answer, and when, is known exactly."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hotplate.serving.gateway.queue.adaptive_limit import Mark


class Sharing:
    """Shares its processors among all that it has: up to `knee` requests go at full speed, each
    then takes 1 s of them, times a lognormal factor of that mean and `noise`."""

    def __init__(self, knee: float, noise: float = 0.0, seed: int = 0) -> None:
        self.knee = knee
        self.now = 0.0
        self._noise = noise
        self._random = random.Random(seed)
        self._turn = 0
        self._ends: list[tuple[float, int]] = []
        """When each ends, on a clock that goes as fast as the requests do."""
        self._pace_at = 0.0

    def add(self) -> int:
        """Begins a request; its number."""
        self._turn += 1
        heapq.heappush(self._ends, (self._pace_at + self._work_s(), self._turn))
        return self._turn

    def end(self) -> int:
        """Goes on until the next one ends; its number."""
        ends_at, turn = heapq.heappop(self._ends)
        self.now += max(0.0, ends_at - self._pace_at) / self._pace(len(self._ends) + 1)
        self._pace_at = max(self._pace_at, ends_at)
        return turn

    def _pace(self, number: int) -> float:
        return min(1.0, self.knee / number)

    def _work_s(self) -> float:
        return math.exp(self._random.gauss(-(self._noise**2) / 2, self._noise))


class Batching(Sharing):
    """Each one more slows all down a little: nothing like an edge, as in continuous batching."""

    def _pace(self, number: int) -> float:
        return 1.0 / (1.0 + (number - 1) / self.knee)


class Line(Sharing):
    """Runs `knee` at a time, the others in line: threads, or a loop that is blocked."""

    def __init__(self, knee: float, noise: float = 0.0, seed: int = 0) -> None:
        super().__init__(knee, noise, seed)
        self._line: deque[int] = deque()

    def add(self) -> int:
        self._turn += 1
        if len(self._ends) < self.knee:
            self._run(self._turn)
        else:
            self._line.append(self._turn)
        return self._turn

    def end(self) -> int:
        self.now, turn = heapq.heappop(self._ends)
        while self._line and len(self._ends) < self.knee:
            self._run(self._line.popleft())
        return turn

    def _run(self, turn: int) -> None:
        heapq.heappush(self._ends, (self.now + self._work_s(), turn))


@dataclass(frozen=True)
class Shown:
    """Of the requests that were counted."""

    per_s: float
    time_s: float
    """The mean of a request's time in the replica."""
    most: int
    """The highest number learnt meanwhile."""


class Limit(Protocol):
    """How many may go to a replica: an `AdaptiveLimit`, or what it is compared with."""

    limit: int
    learnt: int

    def begin(self, now: float) -> Mark: ...
    def end(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None: ...


def load(
    replica: Sharing,
    limit: Limit,
    requests: int,
    *,
    clients: int = 2000,
    counted_from: int = 0,
    at: Callable[[int], None] = lambda done: None,
) -> Shown:
    """Has so many `clients` ask again and again; `at` is told how many answers there were. What
    runs at the end ends."""
    waiting, begun = clients, dict[int, tuple[float, Mark]]()
    since_s, time_s, most = replica.now, 0.0, 0
    for done in range(1, requests + 1):
        while waiting and len(begun) < limit.limit:
            begun[replica.add()] = replica.now, limit.begin(replica.now)
            waiting -= 1
        begun_at, mark = begun.pop(replica.end())
        limit.end(begun_at, mark, replica.now, waiting=waiting > 0)
        waiting += 1
        at(done)
        if done <= counted_from:
            since_s = replica.now
        else:
            time_s += replica.now - begun_at
            most = max(most, limit.learnt)
    counted, lasted_s = requests - counted_from, replica.now - since_s
    while begun:
        begun_at, mark = begun.pop(replica.end())
        limit.end(begun_at, mark, replica.now, waiting=False)
    return Shown(counted / lasted_s, time_s / counted, most)
