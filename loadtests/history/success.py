"""How many of the requests that may run twice got their answer. Pure.

Only those count whose clients wait: one that leaves has no answer by its own will, and one with a
time limit of its own is refused where the answer would come later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadtests.history.observations import Ended, History
from loadtests.history.operation import Operation


@dataclass(frozen=True)
class Success:
    asked: int
    answered: int
    """With the right answer."""
    repeated: int
    """Of those answered: by their clients, because a connection had ended."""

    @property
    def share(self) -> float:
        return self.answered / max(1, self.asked)


def success_of(history: History) -> Success:
    asked = {one.request for one in history.sent if _counts(one.request)}
    right = {end.request for end in history.ended if _is_right(end)} & asked
    return Success(len(asked), len(right), len(right & {one.request for one in history.repeated}))


def under_way(history: History, spans: Sequence[tuple[float, float]]) -> History:
    """Of a history, the requests that were sent and had no end yet at some time of one of these
    spans: their own callers felt what happened then."""
    ended_at = {end.request: end.at for end in history.ended}
    felt = {
        one.request
        for one in history.sent
        for began, over in spans
        if one.at <= over and ended_at.get(one.request, math.inf) >= began
    }
    return replace(
        history,
        sent=[one for one in history.sent if one.request in felt],
        repeated=[one for one in history.repeated if one.request in felt],
        ended=[one for one in history.ended if one.request in felt],
    )


def lost(history: History) -> Iterator[Ended]:
    """The ends of those that count and got no right answer."""
    return (end for end in history.ended if _counts(end.request) and not _is_right(end))


def _counts(number: int) -> bool:
    operation = Operation(number)
    waits = operation.timeout_s is None and operation.leaves_after_s is None
    return operation.may_run_twice and waits


def _is_right(end: Ended) -> bool:
    return end.outcome == "answered" and end.answer_of == end.request
