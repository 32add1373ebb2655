"""How load goes over the time of a test: the share of its peak at each share of its duration.

They are those of `hotplate loadtest --shape`, which `--help` there describes.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

Share = Callable[[float], float]

TRACE = "trace"
PARTS = 60
"""A trace's rate is that of so many parts of its time."""

SHARES: Mapping[str, Share] = {
    "constant": lambda at: 1.0,
    "ramp": lambda at: at,
    "burst": lambda at: 1.0 if 0.4 <= at < 0.6 else 0.1,
    "idle-burst": lambda at: 0.0 if 0.2 <= at < 0.8 else 1.0,
    "day": lambda at: 0.55 - 0.45 * math.cos(2 * math.pi * at),
    "steps": lambda at: min(4, 1 + math.floor(4 * at)) / 4,
}


def of_trace(path: Path) -> tuple[Share, float]:
    """The rate of a CSV file with a column `arrival_s`, gzip too, as a share of its highest, and
    how long it lasts. Raises OSError, and ValueError for another file."""
    packed = path.read_bytes()[:2] == b"\x1f\x8b"
    with gzip.open(path, "rt") if packed else path.open() as file:
        rows = csv.DictReader(file)
        if "arrival_s" not in (rows.fieldnames or ()):
            raise ValueError(f"{path} has no column arrival_s")
        arrivals = [float(row["arrival_s"] or "") for row in rows]
    if not arrivals:
        raise ValueError(f"{path} has no requests")
    first_s = min(arrivals)
    lasts_s = max(max(arrivals) - first_s, 1.0)

    def part(at: float) -> int:
        return min(int(PARTS * at), PARTS - 1)

    counts = Counter(part((arrival_s - first_s) / lasts_s) for arrival_s in arrivals)
    most = max(counts.values())
    return lambda at: counts[part(at)] / most, lasts_s
