"""What a cold start on record adds up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class ColdStart:
    """One item of `/cold_starts`; seconds."""

    replica: str
    whole_s: float
    """From wanted to ready, by the record and not by its phases."""
    length_s: Mapping[str, float]
    """Per phase."""
    share_s: Mapping[str, float]
    """Per phase: how long the start waited for it."""
    gap_s: float
    """How much of the whole is in no phase."""
    wanted_at: float
    ready_at: float

    @staticmethod
    def of(item: Mapping[str, Any]) -> ColdStart:
        wanted_at = datetime.fromisoformat(item["created_at"]).timestamp()
        ready_at = datetime.fromisoformat(item["ready_at"]).timestamp()
        length_s: defaultdict[str, float] = defaultdict(float)
        share_s: defaultdict[str, float] = defaultdict(float)
        for phase in item["phases"]:
            length_s[phase["name"]] += phase["end"] - phase["start"]
            share_s[phase["name"]] += phase["share_s"]
        whole_s = ready_at - wanted_at
        gap_s, covered_until = 0.0, wanted_at
        for phase in sorted(item["phases"], key=lambda phase: phase["start"]):
            gap_s += max(0.0, phase["start"] - covered_until)
            covered_until = max(covered_until, phase["end"])
        gap_s += max(0.0, ready_at - covered_until)
        return ColdStart(item["replica"], whole_s, length_s, share_s, gap_s, wanted_at, ready_at)

    @property
    def length_error(self) -> float:
        """By which part of the whole the sum of the phases' lengths differs from it."""
        return abs(sum(self.length_s.values()) / self.whole_s - 1)

    @property
    def share_error(self) -> float:
        """The same of their shares."""
        return abs(sum(self.share_s.values()) / self.whole_s - 1)
