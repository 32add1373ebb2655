"""Requests whose bodies still come: when they may go for a slot, and when they must leave it.

Slots are for requests that are here whole, so that what a caller does not send costs that caller
only. One whose body still comes waits beside the queue and is read on, in memory and then in a
file (`spool.py`). So that uploads and their handlers overlap where there is room, it may go for a
slot earlier, on credit, while nobody waits for one and its address has lost none of late:

* where another slot stays free, and half of the route's slots at most are lent: as soon as
  `read_ahead_bytes` of it are here, or `grace_s` after its turn came, by when nearly every honest
  small body is whole;
* where it comes in chunks and nothing has come for `stall_s`, any free slot: its caller may want to
  read some of the answer before it goes on.

While others wait for a slot, one that was lent is taken back when no byte has come for `stall_s`,
or fewer than `slow_bytes_per_s`, and its address has no credit for `wary_s`. What has not even room
in files pushes out others: whoever stands still, then the address that fills most.

Pure: time is told.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from hotplate.serving.gateway.limits import Limits

BARRED_MOST = 4096
"""Addresses without credit that are remembered; the oldest is forgotten for one more."""


class SlowBody(Protocol):
    """A request whose body still comes."""

    @property
    def awaited(self) -> bool:
        """Whether its turn has come, and only its body is waited for."""

    @property
    def holds_place(self) -> bool:
        """Whether it waits for a slot, or has one, and its body still comes."""

    @property
    def address(self) -> bytes:
        """Its caller's."""

    @property
    def in_chunks(self) -> bool:
        """Whether its body says only at its end how long it is."""

    @property
    def spooled_bytes(self) -> int:
        """What of it is in a file."""

    received: int
    """Bytes of the body."""

    def silent_s(self, now: float) -> float:
        """How long nothing has come of it, though it was read."""

    def held_s(self, now: float) -> float:
        """How long it has had its slot; 0 while it has none."""


Request = TypeVar("Request", bound=SlowBody)


class SlowBodies(Generic[Request]):
    """Of one route. `slots` are the route's, `free` those that nobody has or waits for."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._waiting: dict[Request, None] = {}
        """All that wait for their bodies."""
        self._graced: deque[tuple[float, Request]] = deque()
        """With when their time is over: for all of them it is equally long."""
        self._hoping: OrderedDict[Request, None] = OrderedDict()
        """Those whose time is over, for a slot that another one stays free beside."""
        self._listening: deque[tuple[float, Request]] = deque()
        """Those in chunks, with when to look whether they stand still."""
        self._silent: OrderedDict[Request, None] = OrderedDict()
        """Those in chunks that stood still when they were looked at, for any free slot."""
        self._inside: dict[Request, None] = {}
        self._barred: OrderedDict[bytes, float] = OrderedDict()
        """Addresses that have no credit, with until when."""
        self._lent_in_silence = False
        """One that went in while it stood still may still stand."""

    def expect(self, request: Request, now: float) -> float:
        """The body of a request whose turn has come is not here: when to ask `entering`."""
        limits = self._limits()
        self._waiting[request] = None
        self._graced.append((now + limits.grace_s, request))
        if request.in_chunks:
            self._listening.append((now + limits.stall_s, request))
        return now + limits.grace_s

    def forget(self, request: Request) -> None:
        """It is complete, or will not be."""
        self._waiting.pop(request, None)
        self._hoping.pop(request, None)
        self._silent.pop(request, None)

    def lends(self, request: Request, slots: int, free: int, now: float) -> bool:
        """Whether one of which much is here may go for a slot now."""
        return self._spare(slots, free) > 0 and not self._is_barred(request.address, now)

    def entered(self, request: Request) -> None:
        """It goes for a slot, and its body still comes."""
        self._inside[request] = None

    def entering(self, slots: int, free: int, now: float) -> Sequence[Request]:
        """Those that may go for a slot now."""
        self._look_around(now)
        entering: list[Request] = []
        room = self._spare(slots, free) if self._hoping else 0
        while self._hoping and len(entering) < room:
            request = self._hoping.popitem(last=False)[0]
            if not self._is_barred(request.address, now):
                entering.append(request)
        if self._silent and free > 0 and not entering and not self._any_inside():
            request = self._silent.popitem(last=False)[0]
            if request.silent_s(now) < self._limits().stall_s:
                self._listening.append((now + self._limits().stall_s, request))
            elif not self._is_barred(request.address, now):
                self._lent_in_silence = True
                entering.append(request)
        return entering

    def next_stall_at(self, now: float) -> float:
        """When to ask `stalled`, as somebody waits."""
        return now if self._lent_in_silence else now + self._limits().stall_s / 4

    def stalled(self, now: float) -> Sequence[Request]:
        """Those that must leave because others wait."""
        self._lent_in_silence = False
        self._look_inside()
        stalled = [each for each in self._inside if self._is_stalled(each, now)]
        for request in stalled:
            self._bar(request.address, now + self._limits().wary_s)
        return stalled

    def to_push_out(self, request: Request, size_bytes: int, now: float) -> Request | None:
        """Whose file goes for so much more of this one's; None = nobody's."""
        limits, own = self._limits(), request.address
        filled: dict[bytes, int] = {own: size_bytes}
        quiet: dict[bytes, Request] = {}
        for each in self._waiting:
            if not each.spooled_bytes:
                continue
            if each is not request and each.silent_s(now) >= limits.stall_s:
                return each
            address = each.address
            filled[address] = filled.get(address, 0) + each.spooled_bytes
            most = quiet.get(address)
            if most is None or each.silent_s(now) > most.silent_s(now):
                quiet[address] = each
        fullest = max(filled, key=lambda address: filled[address])
        return None if fullest == own else quiet[fullest]

    @property
    def any_inside(self) -> bool:
        return bool(self._inside)

    @property
    def any_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def any_hoping(self) -> bool:
        """Whether a free slot would let somebody in."""
        return bool(self._hoping or self._silent)

    def next_at(self) -> float | None:
        """When time alone may let somebody in."""
        times = [dues[0][0] for dues in (self._graced, self._listening) if dues]
        return min(times, default=None)

    # Inside

    def _look_around(self, now: float) -> None:
        """Whose time is over hopes; who comes in chunks and stands still may be waiting for us."""
        while self._graced and self._graced[0][0] <= now:
            _, request = self._graced.popleft()
            if request.awaited:
                self._hoping[request] = None
        stall_s = self._limits().stall_s
        while self._listening and self._listening[0][0] <= now:
            _, request = self._listening.popleft()
            if not request.awaited:
                continue
            if request.silent_s(now) >= stall_s:
                self._silent[request] = None
            else:
                self._listening.append((now + stall_s, request))

    def _spare(self, slots: int, free: int) -> int:
        """How many slots may be lent."""
        spare = min(slots // 2 - len(self._inside), free - 1)
        if spare <= 0 and self._inside:
            self._look_inside()
            spare = min(slots // 2 - len(self._inside), free - 1)
        return spare

    def _any_inside(self) -> bool:
        self._look_inside()
        return bool(self._inside)

    def _is_stalled(self, request: Request, now: float) -> bool:
        limits = self._limits()
        held_s = request.held_s(now)
        if held_s <= 0.0:
            return False
        allowed_s = limits.stall_s + request.received / limits.slow_bytes_per_s
        return request.silent_s(now) >= limits.stall_s or held_s >= allowed_s

    def _bar(self, address: bytes, until: float) -> None:
        self._barred.pop(address, None)
        self._barred[address] = until
        if len(self._barred) > BARRED_MOST:
            self._barred.popitem(last=False)

    def _is_barred(self, address: bytes, now: float) -> bool:
        until = self._barred.get(address)
        return until is not None and now < until

    def _look_inside(self) -> None:
        for request in [each for each in self._inside if not each.holds_place]:
            del self._inside[request]
