"""The rows of the slots' table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.harness.bounds import Bound, BoundedRow, verdict
from loadtests.harness.report import column, median


@dataclass(frozen=True)
class Row(BoundedRow):
    ours: float | None = column("hotplate")
    peer: float | None = column("bentoml serve")
    of_peer: float | None = column("x bentoml serve, median of pairs")
    fixed_1: float | None = column("fixed at 1")
    fixed_2: float | None = column("at 2")
    fixed_4: float | None = column("at 4")
    fixed_8: float | None = column("at 8")
    per_s: float | None = column("answers/s, x the best fixed number")
    time: float | None = column("time of one, x at the knee")
    seeds: str = ""
    digits: int = 2


Pairs = Sequence[tuple[float, float]]
"""Our figure, and the peer's right before or after it."""


def beside(
    figure: str, pairs: Pairs, of_peer: Bound | None = None, ours: Bound | None = None
) -> Row:
    """The medians; a bound is for the median of the pairs' ratios, or for ours."""
    mine, peers = median(own for own, _ in pairs), median(peer for _, peer in pairs)
    quotient = median(own / peer for own, peer in pairs)
    text, holds = "", ""
    if of_peer is not None:
        text, holds = f"{of_peer.text} x bentoml serve", verdict(of_peer.holds(quotient))
    elif ours is not None:
        text, holds = ours.text, verdict(ours.holds(mine))
    return Row(figure, text, holds, ours=mine, peer=peers, of_peer=quotient)
