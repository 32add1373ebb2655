"""Requests whose bodies are still coming: when they may have a slot, and when they must give it up.

Slots are for whole requests, so that a body that does not come costs its own caller only. A request
whose body is still coming waits beside the queue, and its body is read into memory and then into a
file (`spool.py`). So that uploads and their handlers can overlap, such a request may be lent a slot
while no other waits for one and its address has credit:

* if another slot stays free, and at most half of the route's slots are lent: as soon as
  `read_ahead_bytes` of the body are here, or `grace_s` after the request's turn came, when nearly
  every honest small body is whole;
* if the body comes in chunks and nothing has come for `stall_s`: any free slot, because the caller
  may want to read some of the response before it sends more.

While others wait for a slot, a lent slot is taken back when no byte has come for `stall_s`, or
fewer than `slow_bytes_per_s`; then the address has no credit for `wary_s`. If there is no space in
files either, a body is dropped for another: first one that stands still, then one of the address
that fills most.

Pure: time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from hotplate.serving.gateway.limits import Limits

WITHOUT_CREDIT_MOST = 4096
"""Limit of addresses without credit that are kept; the oldest is dropped for a new one."""


class SlowBody(Protocol):
    """A request whose body is still coming."""

    @property
    def awaited(self) -> bool:
        """Whether its turn has come and it waits for its body only."""

    @property
    def is_uploading(self) -> bool:
        """Whether it has a slot, or waits for one, and its body is still coming."""

    @property
    def address(self) -> bytes:
        """Its caller's address."""

    @property
    def in_chunks(self) -> bool:
        """Whether its body has no known length."""

    @property
    def spooled_bytes(self) -> int:
        """Bytes of its body in a file."""

    received: int
    """Bytes of its body that have come."""

    def silent_s(self, now: float) -> float:
        """How long no byte of it has come, though it was read."""

    def slot_age_s(self, now: float) -> float:
        """How long it has had its slot; 0 while it has none."""


Request = TypeVar("Request", bound=SlowBody)


class SlowBodies(Generic[Request]):
    """The unfinished bodies of one route. `slots` are the route's, `free` those that no request has
    or waits for."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._waiting: dict[Request, None] = {}
        """All requests that wait for their bodies."""
        self._graced: deque[tuple[float, Request]] = deque()
        """These with the end of their grace time, which is equally long for all."""
        self._eligible: OrderedDict[Request, None] = OrderedDict()
        """Those whose grace time is over; they may have a slot if another one stays free."""
        self._listening: deque[tuple[float, Request]] = deque()
        """Those in chunks, with the time of their next check."""
        self._silent: OrderedDict[Request, None] = OrderedDict()
        """Those in chunks that stood still at their last check; they may have any free slot."""
        self._lent: dict[Request, None] = {}
        self._without_credit: OrderedDict[bytes, float] = OrderedDict()
        """Addresses without credit, and until when."""
        self._lent_in_silence = False
        """Whether one that had stood still was lent a slot, and may still stand."""

    def expect(self, request: Request, now: float) -> float:
        """The body of a request whose turn has come is not here; returns when to call
        `take_eligible`."""
        limits = self._limits()
        self._waiting[request] = None
        self._graced.append((now + limits.grace_s, request))
        if request.in_chunks:
            self._listening.append((now + limits.stall_s, request))
        return now + limits.grace_s

    def forget(self, request: Request) -> None:
        """The body is complete, or will not be."""
        self._waiting.pop(request, None)
        self._eligible.pop(request, None)
        self._silent.pop(request, None)

    def lends(self, request: Request, slots: int, free: int, now: float) -> bool:
        """Whether a request may have a slot now, of whose body much is here."""
        return self._spare(slots, free) > 0 and not self._lacks_credit(request.address, now)

    def began(self, request: Request) -> None:
        """The request waits for a slot, or has one, and its body still comes."""
        self._lent[request] = None

    def take_eligible(self, slots: int, free: int, now: float) -> Sequence[Request]:
        """Removes and returns the requests that may have a slot now."""
        self._update_eligible(now)
        eligible: list[Request] = []
        room = self._spare(slots, free) if self._eligible else 0
        while self._eligible and len(eligible) < room:
            request = self._eligible.popitem(last=False)[0]
            if not self._lacks_credit(request.address, now):
                eligible.append(request)
        if self._silent and free > 0 and not eligible and not self._any_still_lent():
            request = self._silent.popitem(last=False)[0]
            if request.silent_s(now) < self._limits().stall_s:
                self._listening.append((now + self._limits().stall_s, request))
            elif not self._lacks_credit(request.address, now):
                self._lent_in_silence = True
                eligible.append(request)
        return eligible

    def next_stall_at(self, now: float) -> float:
        """When to call `stalled`, as requests wait."""
        return now if self._lent_in_silence else now + self._limits().stall_s / 4

    def stalled(self, now: float) -> Sequence[Request]:
        """The requests that must give up their slots because others wait."""
        self._lent_in_silence = False
        self._drop_done()
        stalled = [each for each in self._lent if self._is_stalled(each, now)]
        for request in stalled:
            self._end_credit(request.address, now + self._limits().wary_s)
        return stalled

    def to_push_out(self, request: Request, size_bytes: int, now: float) -> Request | None:
        """The request whose file is dropped for `size_bytes` more of this one's; None = no
        other's."""
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
    def any_lent(self) -> bool:
        return bool(self._lent)

    @property
    def any_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def any_eligible(self) -> bool:
        """Whether a free slot could be lent."""
        return bool(self._eligible or self._silent)

    def next_at(self) -> float | None:
        """When time alone may make a request eligible; None = never."""
        times = [dues[0][0] for dues in (self._graced, self._listening) if dues]
        return min(times, default=None)

    # Inside

    def _update_eligible(self, now: float) -> None:
        """Moves requests whose grace time is over, and those in chunks that stand still."""
        while self._graced and self._graced[0][0] <= now:
            _, request = self._graced.popleft()
            if request.awaited:
                self._eligible[request] = None
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
        spare = min(slots // 2 - len(self._lent), free - 1)
        if spare <= 0 and self._lent:
            self._drop_done()
            spare = min(slots // 2 - len(self._lent), free - 1)
        return spare

    def _any_still_lent(self) -> bool:
        self._drop_done()
        return bool(self._lent)

    def _is_stalled(self, request: Request, now: float) -> bool:
        limits = self._limits()
        slot_age_s = request.slot_age_s(now)
        if slot_age_s <= 0.0:
            return False
        allowed_s = limits.stall_s + request.received / limits.slow_bytes_per_s
        return request.silent_s(now) >= limits.stall_s or slot_age_s >= allowed_s

    def _end_credit(self, address: bytes, until: float) -> None:
        self._without_credit.pop(address, None)
        self._without_credit[address] = until
        if len(self._without_credit) > WITHOUT_CREDIT_MOST:
            self._without_credit.popitem(last=False)

    def _lacks_credit(self, address: bytes, now: float) -> bool:
        until = self._without_credit.get(address)
        return until is not None and now < until

    def _drop_done(self) -> None:
        for request in [each for each in self._lent if not each.is_uploading]:
            del self._lent[request]
