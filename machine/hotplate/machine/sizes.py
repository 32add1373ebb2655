"""Sizes as people write them: bytes, or with a unit."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(text: str) -> int:
    """Bytes of `500000000`, `500MB`, `1.5GiB`; case does not matter.

    Raises ValueError with a sentence.
    """
    found = _SIZE.fullmatch(text)
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if found is None or found[2].lower() not in units:
        raise ValueError(f"{text!r} is not a size: write bytes, or KB MB GB TB KiB MiB GiB TiB")
    size_bytes = int(Decimal(found[1]) * units[found[2].lower()])
    if size_bytes >= 1 << 60:
        raise ValueError(f"{text!r} is more than any machine has: write less than 1048576TiB")
    return size_bytes
