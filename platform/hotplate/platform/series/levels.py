"""How finely what is how old is kept, and in which steps a question is answered; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

DAY_S = 86_400
POINTS_MAX = 2000
"""In one answer; a smaller step is made larger."""


class Level(NamedTuple):
    """One fineness."""

    step_s: int
    block_s: int
    """The points of so long are kept in one row."""
    kept_s: int


FINE = Level(10, 60, DAY_S)
MEDIUM = Level(60, 900, 8 * DAY_S)
COARSE = Level(900, DAY_S, 100 * DAY_S)
LEVELS = (FINE, MEDIUM, COARSE)


@dataclass(frozen=True)
class Grid:
    """The steps of an answer."""

    begin: int
    """When the first one begins, Unix seconds."""
    step_s: int
    count: int
    level: Level
    """Of what is kept it is made of this."""

    @property
    def end(self) -> int:
        """When the last one ends."""
        return self.begin + self.count * self.step_s

    @property
    def at(self) -> list[int]:
        """When each begins."""
        return [self.begin + number * self.step_s for number in range(self.count)]


def grid(begin: float, end: float, step_s: float, now: float) -> Grid:
    """Steps that hold all from `begin` to `end`, Unix seconds, of at least `step_s`: longer where
    so many would be too many, or where what is so old is not kept so finely."""
    least_s = max(step_s, (end - begin) / POINTS_MAX, 1.0)
    level = next((each for each in LEVELS if begin >= now - each.kept_s + each.block_s), COARSE)
    level = max(level, *(each for each in LEVELS if least_s >= each.step_s or each == FINE))
    step = math.ceil(least_s / level.step_s) * level.step_s
    while True:
        first = int(begin // step * step)
        count = max(1, math.ceil((end - first) / step))
        if count <= POINTS_MAX:
            return Grid(first, step, count, level)
        step += level.step_s
