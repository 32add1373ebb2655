"""Links of one speed, up and down, that transfers share nearly fairly, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.cache.virtual_time import VirtualTime

QUANTUM_S = 0.002
"""Rates are set at most so often."""
ROUNDS = 6
"""Of sharing what others leave over: the last rounds change little."""


@dataclass(eq=False)
class End:
    """One end of links: a node, or the origin."""


@dataclass(eq=False)
class Transfer:
    """Bytes on their way between two ends."""

    source: End
    target: End
    remaining_bytes: float
    done: Callable[[], None]
    rate: float = 0.0


class Links:
    """Every end has one link, of `link` bytes per second up and as much down."""

    def __init__(self, time: VirtualTime, link: float) -> None:
        self._time = time
        self._link = link
        self._transfers: dict[Transfer, None] = {}
        self._sharing = False
        self._shared_at = self._advanced_at = 0.0
        self._version = 0

    def send(self, source: End, target: End, size: float, done: Callable[[], None]) -> None:
        """Calls `done` when `size` bytes have come."""
        self._transfers[Transfer(source, target, size, done)] = None
        self._share_soon()

    def stop(self, end: End) -> list[Transfer]:
        """Takes the transfers of one end away, and returns them."""
        stopped = [one for one in self._transfers if end in (one.source, one.target)]
        if stopped:
            self._advance()
            for one in stopped:
                del self._transfers[one]
            self._share_soon()
        return stopped

    def _share_soon(self) -> None:
        if not self._sharing:
            self._sharing = True
            self._time.at(self._shared_at + QUANTUM_S, self._share)

    def _advance(self) -> None:
        passed_s, self._advanced_at = self._time.now - self._advanced_at, self._time.now
        for one in self._transfers:
            one.remaining_bytes -= one.rate * passed_s

    def _share(self) -> None:
        """Ends what has arrived, and gives every transfer its rate until the next event."""
        self._sharing = False
        self._shared_at = self._time.now
        self._advance()
        for one in [one for one in self._transfers if one.remaining_bytes < 1.0]:
            del self._transfers[one]
            one.done()
        if not self._transfers:
            return
        numbers: dict[End, int] = {}
        ends = [(one.source, one.target) for one in self._transfers]
        numbered = np.array(
            [[numbers.setdefault(end, len(numbers)) for end in pair] for pair in ends]
        )
        rates = _rates(numbered[:, 0], numbered[:, 1], len(numbers)) * self._link
        for one, rate in zip(self._transfers, rates.tolist(), strict=True):
            one.rate = rate
        soonest_s = min(one.remaining_bytes / one.rate for one in self._transfers)
        self._version += 1
        self._time.after(max(soonest_s, QUANTUM_S), self._at_version(self._version))

    def _at_version(self, version: int) -> Callable[[], None]:
        return lambda: self._share() if version == self._version else None


def _rates(sources: Any, targets: Any, ends: int) -> Any:
    """Shares of the links, nearly max-min fair: what one end cannot use goes to others."""
    rates = np.zeros(len(sources))
    up, down = np.ones(ends), np.ones(ends)
    open_ = np.ones(len(sources))
    for _ in range(ROUNDS):
        ups = np.bincount(sources, open_, ends)
        downs = np.bincount(targets, open_, ends)
        share = np.minimum(
            (up / np.maximum(ups, 1))[sources], (down / np.maximum(downs, 1))[targets]
        )
        share *= open_
        rates += share
        up = np.maximum(up - np.bincount(sources, share, ends), 0.0)
        down = np.maximum(down - np.bincount(targets, share, ends), 0.0)
        open_ = ((up > 1e-3)[sources] & (down > 1e-3)[targets]).astype(float)
    return np.maximum(rates, 1e-4)
