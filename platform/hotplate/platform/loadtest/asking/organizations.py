"""Which organization asks next, by their weights; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hotplate.platform.errors import BadSetting

MOST_TURNS = 10_000
_NAME = re.compile(r"[!-+\--<>-~]{1,200}")
"""What a header field carries and a gateway keeps: printable ASCII without a comma, = or space."""


def parse(text: str) -> dict[str, int]:
    """`acme=3,beta=1`: the weight of each. Raises BadSetting."""
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = part.strip().rpartition("=")
        if not equals:
            name, value = value, "1"
        if not _NAME.fullmatch(name):
            raise BadSetting(
                f"--organizations {text}: {part.strip() or 'nothing'} is not NAME=WEIGHT; write "
                "acme=3,beta=1"
            )
        if not re.fullmatch(r"[0-9]{1,6}", value) or not 0 < int(value) <= MOST_TURNS:
            raise BadSetting(
                f"--organizations {text}: the weight of {name} is not a whole number from 1 to "
                f"{MOST_TURNS}"
            )
        if name in weights:
            raise BadSetting(f"--organizations {text}: {name} appears twice; remove one of them")
        weights[name] = int(value)
    divisor = math.gcd(*weights.values())
    weights = {name: weight // divisor for name, weight in weights.items()}
    if sum(weights.values()) > MOST_TURNS:
        raise BadSetting(f"--organizations {text}: the weights add up to more than {MOST_TURNS}")
    return weights


def turns(weights: Mapping[str, int]) -> tuple[int, ...]:
    """A round in which each comes as often as its weight says, spread evenly.

    Each item is a place among `weights`. Smooth weighted round robin, as in nginx.
    """
    whole = sum(weights.values())
    owed = [0] * len(weights)
    shares = list(weights.values())
    found = []
    for _ in range(whole):
        owed = [debt + share for debt, share in zip(owed, shares, strict=True)]
        chosen = owed.index(max(owed))
        owed[chosen] -= whole
        found.append(chosen)
    return tuple(found)
