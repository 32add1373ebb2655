"""Requests whose bodies still come: when they may go for a slot, and when they must leave it.

A replica gets a body's pieces as they come, so a slow caller holds a slot for as long as it sends.
That must not cost the others theirs:

* Within `grace_s` of its head nearly every honest small body is here whole; until then, and until
  `read_ahead_bytes` of it are here, a request waits.
* After that it may go, but such requests hold half of a route's slots at most (at least one), and
  the rest of them wait behind those that are complete.
* While others wait for a slot, one in which no byte has come for `stall_s`, or fewer than
  `slow_bytes_per_s`, is taken back, and for `wary_s` nobody gets one on credit: only a body that
  is complete, or `read_ahead_bytes` of it.

Pure: time is told.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from hotplate.serving.gateway.limits import Limits


class Arriving(Protocol):
    """A request whose body still comes."""

    @property
    def awaited(self) -> bool:
        """Whether its turn has come, and only its body is waited for."""

    @property
    def holds_place(self) -> bool:
        """Whether it waits for a slot, or has one, and its body still comes."""

    received: int
    """Bytes of the body."""

    def silent_s(self, now: float) -> float:
        """How long nothing has come of it, though it was read."""

    def held_s(self, now: float) -> float:
        """How long it has had its slot; 0 while it has none."""


Request = TypeVar("Request", bound=Arriving)


class Arrivals(Generic[Request]):
    """Of one route."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._graced: deque[tuple[float, Request]] = deque()
        """With when their time is over: for all of them it is equally long."""
        self._waiting: OrderedDict[Request, None] = OrderedDict()
        self._inside: dict[Request, None] = {}
        self._wary_until = 0.0

    def expect(self, request: Request, now: float) -> float:
        """The body of a request whose turn has come is not here: when to ask `entering`."""
        due = now + self._limits().grace_s
        self._graced.append((due, request))
        return due

    def forget(self, request: Request) -> None:
        """It is complete, or will not be."""
        self._waiting.pop(request, None)

    def entered(self, request: Request) -> None:
        """It goes for a slot, and its body still comes."""
        self._inside[request] = None

    def entering(self, slots: int, now: float) -> Sequence[Request]:
        """Those that may go for a slot now, of a route with so many."""
        while self._graced and self._graced[0][0] <= now:
            _, request = self._graced.popleft()
            if request.awaited:
                self._waiting[request] = None
        entering: list[Request] = []
        if self._waiting and now >= self._wary_until:
            self._look_inside()
            room = max(1, slots // 2) - len(self._inside)
            while self._waiting and len(entering) < room:
                entering.append(self._waiting.popitem(last=False)[0])
        return entering

    def stalled(self, now: float) -> Sequence[Request]:
        """Those that must leave because others wait."""
        self._look_inside()
        stalled = [each for each in self._inside if self._is_stalled(each, now)]
        if stalled:
            self._wary_until = now + self._limits().wary_s
        return stalled

    @property
    def any_inside(self) -> bool:
        return bool(self._inside)

    @property
    def any_waiting(self) -> bool:
        return bool(self._waiting)

    def next_at(self, now: float) -> float | None:
        """When time alone will let somebody in."""
        times = [self._graced[0][0]] if self._graced else []
        if self._waiting and self._wary_until > now:
            times.append(self._wary_until)
        return min(times, default=None)

    def _is_stalled(self, request: Request, now: float) -> bool:
        limits = self._limits()
        held_s = request.held_s(now)
        if held_s < limits.stall_s:
            return False
        allowed_s = limits.stall_s + request.received / limits.slow_bytes_per_s
        return request.silent_s(now) >= limits.stall_s or held_s >= allowed_s

    def _look_inside(self) -> None:
        for request in [each for each in self._inside if not each.holds_place]:
            del self._inside[request]
