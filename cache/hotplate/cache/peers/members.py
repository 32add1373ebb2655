"""Which agents make up the cluster, and which of them are there.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock. An agent is known by the
id that it makes up at its start; it is reached at a `host:port`, of which it may have several.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LIVE_S = 10.0
"""Who has not answered for that long is not there. Slow is not gone: it may be busy, and what it is
fetching would be fetched twice."""

FORGET_S = 60.0
"""Who was only heard of, and does not answer for that long, is forgotten."""


@dataclass
class _Place:
    """One address."""

    told: bool
    """Whether the operator named it."""
    known_at: float
    id: str = ""
    answered_at: float | None = None
    tried: bool = False


class Members:
    """The addresses of the cluster's agents, and who answers there."""

    def __init__(self, me: str) -> None:
        self.me = me
        self._places: dict[str, _Place] = {}

    def tell(self, addresses: Iterable[str], now: float) -> None:
        """The operator's list, as it is now."""
        named = set(addresses)
        for address in named:
            place = self._places.setdefault(address, _Place(True, now))
            place.told = True
        for address, place in self._places.items():
            place.told = address in named

    def hear_of(self, address: str, now: float) -> bool:
        """Somebody is said to be there; whether that is news."""
        if address in self._places:
            return False
        self._places[address] = _Place(False, now)
        return True

    def met(self, address: str, id: str, now: float) -> str:
        """That agent has answered there; the id of who did before it, if that was another."""
        place = self._places.setdefault(address, _Place(False, now))
        before = place.id
        place.id, place.answered_at, place.tried, place.known_at = id, now, True, now
        return before if before != id else ""

    def at(self, address: str) -> str:
        """Who answers there; nothing if nobody did."""
        place = self._places.get(address)
        return "" if place is None else place.id

    def silent(self, address: str, now: float, refused: bool) -> str:
        """Nobody answered there; `refused`: nor listens. The id of who did and is gone, if any."""
        place = self._places.get(address)
        if place is None:
            return ""
        if place.answered_at is not None and not refused and now - place.answered_at < LIVE_S:
            return ""
        gone, place.id = place.id, ""
        place.answered_at, place.tried = None, True
        if not place.told and now - place.known_at >= FORGET_S:
            del self._places[address]
        return gone

    def reach(self, id: str, now: float) -> str | None:
        """Where that agent answers. Thread-safe."""
        return self.live(now).get(id)

    def live(self, now: float) -> dict[str, str]:
        """The addresses of those who are there, by id."""
        found: dict[str, str] = {}
        for address, place in list(self._places.items()):
            at = place.answered_at
            if at is not None and now - at < LIVE_S and place.id != self.me:
                found.setdefault(place.id, address)
        return found

    def addresses(self) -> list[str]:
        """Where others may be: every known address but our own."""
        return [one for one, place in list(self._places.items()) if place.id != self.me]

    def awaited(self, now: float) -> set[str]:
        """Addresses whose answer matters: who is there, or was never asked."""
        answered = set(self.live(now).values())
        return answered | {one for one, place in self._places.items() if not place.tried}
