"""Round numbers for the axis of a picture; pure."""

from __future__ import annotations

import math


def marks(most: float, count: int) -> list[float]:
    """From 0 to the first that is not below `most`, in at most `count` round steps."""
    most *= 1 - 1e-9  # a mean is rounded, too
    power = 10.0 ** math.floor(math.log10(most / count))
    step = next(power * round for round in (1, 2, 5, 10) if power * round * count >= most)
    return [step * number for number in range(math.ceil(most / step) + 1)]
