"""Whether a new revision answers worse than the old one beside it; pure.

Both answer at the same time, so what callers send and what both depend on is alike for both. An
answer is bad where its status is 5xx or it broke off. What a gateway refuses itself is no answer of
a replica and does not count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

LEAST_ANSWERS = 20
"""Of fewer answers of the new revision nothing is concluded."""
LEAST_POINTS = 5
"""The new revision's share of bad answers has to be above the old one's by so many points."""
CHANCE = 1e-4
"""The probability below which a difference is not chance. It is small because it is asked after
each report: of 1,000 roll-outs of two revisions that fail 2 % alike, at most 3 are stopped."""

BAD = ("5xx", "broken")

Counted = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Answers by gateway, version and kind, each since that gateway started."""


@dataclass(frozen=True)
class AnswerCount:
    """The answers of one revision during some time."""

    all: int = 0
    bad: int = 0

    @staticmethod
    def of(kinds: Mapping[str, int]) -> AnswerCount:
        """`kinds`: the number of answers by kind."""
        return AnswerCount(sum(kinds.values()), sum(kinds.get(kind, 0) for kind in BAD))


def worse(new: AnswerCount, old: AnswerCount) -> str:
    """Why the new revision is to be stopped; empty where its answers are not worse.

    Both counts are of the same time.
    """
    above = 100 * (new.bad * old.all - old.bad * new.all)
    if new.all < LEAST_ANSWERS or above < LEAST_POINTS * new.all * old.all:
        return ""
    if fisher_p(new, old) >= CHANCE:
        return ""
    return (
        f"{new.bad} of its {new.all} answers failed, and {old.bad} of {old.all} of the revision "
        "beside it in the same time"
    )


def fisher_p(new: AnswerCount, old: AnswerCount) -> float:
    """The probability that at least as many of the bad answers are the new one's, if both fail
    alike: the one-sided exact test of R. A. Fisher (1922), a sum of hypergeometric terms."""
    bad, answers = new.bad + old.bad, new.all + old.all
    most = min(bad, new.all)
    alike = _log_choose(answers, bad)
    terms = (
        math.exp(_log_choose(new.all, k) + _log_choose(old.all, bad - k) - alike)
        for k in range(max(new.bad, bad - old.all), most + 1)
    )
    return min(1.0, math.fsum(terms))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@dataclass
class AnswerWindow:
    """The answers of both revisions while both serve.

    Gateways count since they started, so what was counted before the window opened is left out,
    and one that starts again counts from 0.
    """

    new: Counter[str] = field(default_factory=Counter)
    old: Counter[str] = field(default_factory=Counter)
    _seen: Counted = field(default_factory=dict, init=False)
    """As of the last look."""

    def look(self, counted: Counted, new: str, old: str, *, both: bool) -> None:
        """`new` and `old` are the two versions. What came since the last look counts where `both`
        serve; of a gateway that was not there then, nothing does."""
        for gateway, versions in counted.items():
            before = self._seen.get(gateway)
            if both and before is not None:
                for version, kinds in ((new, self.new), (old, self.old)):
                    known = before.get(version, {})
                    for kind, count in versions.get(version, {}).items():
                        kinds[kind] += count - known.get(kind, 0)
                        kinds[kind] += known[kind] if count < known.get(kind, 0) else 0
        self._seen = counted

    @property
    def verdict(self) -> str:
        """Why the new revision is to be stopped; empty where it is not."""
        return worse(AnswerCount.of(self.new), AnswerCount.of(self.old))

    @property
    def answers(self) -> int:
        """Of the new revision."""
        return sum(self.new.values())
