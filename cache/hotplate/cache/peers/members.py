"""Which agents make up the cluster, and which of them are there.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock. An agent is known by the
id that it makes up at its start; it is reached at a `host:port`, of which it may have several.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LIVE_S = 10.0
"""An agent that has not responded for that long is gone. A slow one is not: it may be busy, and
what it is fetching would be fetched twice."""

FORGET_S = 60.0
"""An address that only other agents have named, and that does not respond for that long, is
forgotten."""


@dataclass
class _Member:
    """One address, and the agent that responds there."""

    is_seed: bool
    """Whether the operator named it."""
    known_at: float
    id: str = ""
    responded_at: float | None = None
    tried: bool = False


class Members:
    """The addresses of the cluster's agents, and which agent responds at each."""

    def __init__(self, me: str) -> None:
        self.me = me
        self._members: dict[str, _Member] = {}

    def set_seeds(self, addresses: Iterable[str], now: float) -> None:
        """Replaces the operator's list."""
        seeds = set(addresses)
        for address in seeds:
            self._members.setdefault(address, _Member(True, now))
        for address, member in self._members.items():
            member.is_seed = address in seeds

    def add(self, address: str, now: float) -> bool:
        """Another agent has named this address; whether it was unknown."""
        if address in self._members:
            return False
        self._members[address] = _Member(False, now)
        return True

    def responded(self, address: str, id: str, now: float) -> str:
        """That agent has responded there; the id of the one that did before, if that was
        another."""
        member = self._members.setdefault(address, _Member(False, now))
        before = member.id
        member.id, member.responded_at, member.tried, member.known_at = id, now, True, now
        return before if before != id else ""

    def id_at(self, address: str) -> str:
        """The id of the agent that responds there; "" if none has."""
        member = self._members.get(address)
        return "" if member is None else member.id

    def unreachable(self, address: str, now: float, refused: bool) -> str:
        """Nothing responded there; `refused`: nothing listens either. The id of the agent that has
        gone from there, if one has."""
        member = self._members.get(address)
        if member is None:
            return ""
        if member.responded_at is not None and not refused and now - member.responded_at < LIVE_S:
            return ""
        gone, member.id = member.id, ""
        member.responded_at, member.tried = None, True
        if not member.is_seed and now - member.known_at >= FORGET_S:
            del self._members[address]
        return gone

    def address_of(self, id: str, now: float) -> str | None:
        """Where that agent responds. Thread-safe."""
        return self.live(now).get(id)

    def live(self, now: float) -> dict[str, str]:
        """The addresses of the agents that are there, by id."""
        found: dict[str, str] = {}
        for address, member in list(self._members.items()):
            at = member.responded_at
            if at is not None and now - at < LIVE_S and member.id != self.me:
                found.setdefault(member.id, address)
        return found

    def addresses(self) -> list[str]:
        """Where other agents may be: every known address but our own."""
        return [one for one, member in list(self._members.items()) if member.id != self.me]

    def awaited(self, now: float) -> set[str]:
        """The addresses whose response matters: an agent is there, or none was ever asked."""
        live = set(self.live(now).values())
        return live | {one for one, member in self._members.items() if not member.tried}
