"""On or off by queries: all replicas while any result is above 0, none after a long silence; pure.

    binary = BinaryDecider(BinaryPolicy(replicas=2, window_s=1800), live=0, now=now)
    binary.decide([Reading(3.0), Reading(None, "…")], busy=0, live=0, now=now)

An unknown result never changes anything: after an error, a value that is not a number, no sample
from a target that is down, or an old result, the last state stays and the silence begins again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.autoscaler.policy import Cause, Decision
from hotplate.autoscaler.rules.proposal import count, seconds

STALE_S = 60.0
"""A result of this age is no longer used: four fetches were missed."""
RESUMED_S = 180.0
"""A restart within this time does not end a silence: queries look back further than that, and the
stored state may be a minute old."""


@dataclass(frozen=True)
class BinaryPolicy:
    replicas: int
    """How many replicas run while the service is on; 0 = it stays off."""
    window_s: float = 1800.0
    """How long all queries have to be 0 before the service goes off."""


@dataclass(frozen=True)
class Reading:
    """The result of one query."""

    value: float | None
    """The largest of its samples; 0 = no sample, and the target is up; None = not known."""
    problem: str = ""
    """Why the value is not known."""
    at: float = 0.0
    """When the query was sent, loop seconds."""


class BinaryDecider:
    """Decides for one service. It begins in the state that it finds (`live` replicas), or in that
    of an earlier decider: `memory` is what the earlier one's `memory()` returned `away_s` ago."""

    def __init__(
        self,
        policy: BinaryPolicy,
        live: int,
        now: float,
        memory: Mapping[str, Any] | None = None,
        away_s: float = 0.0,
    ) -> None:
        self._policy = policy
        self._on = live > 0
        self._silent_since = math.inf
        self._desired = min(live, policy.replicas)
        self._resumed_until = -math.inf
        if memory is not None:
            self._on = memory.get("on") is True
            if self._on and not live:  # the replicas were stopped with the platform
                self._desired = policy.replicas
            silent_s = memory.get("silent_s")
            if not isinstance(silent_s, int | float) or not 0 <= silent_s < math.inf:
                return
            if away_s <= RESUMED_S:
                self._silent_since = now - away_s - silent_s
                self._resumed_until = now + RESUMED_S - away_s

    def memory(self, now: float) -> dict[str, Any]:
        """Whether the service is on, and how long all queries have been 0, as JSON."""
        silent_s = now - self._silent_since
        return {"on": self._on, "silent_s": round(silent_s, 1) if silent_s >= 0 else None}

    def decide(self, readings: Sequence[Reading], *, busy: int, live: int, now: float) -> Decision:
        """How many replicas there should be; `busy` of them have a job now."""
        fresh = [self._judged(reading, now) for reading in readings]
        unknown = next((one.problem for one in fresh if one.value is None), "")
        most = max((one.value for one in fresh if one.value is not None), default=0.0)
        next_at = None
        if most > 0:
            self._on, self._silent_since = True, math.inf
            desired, why, cause = self._policy.replicas, f"a query returns {most:g}", Cause.DEMAND
        elif unknown or not readings:
            if readings or now > self._resumed_until:
                self._silent_since = math.inf
            state = "on" if self._on else "off"
            why = f"it stays {state}: {unknown or 'no query was sent yet'}"
            desired, cause = self._desired if self._on else 0, Cause.NO_REPORT
        else:
            desired, why, cause, next_at = self._silent(now)
        if desired < busy:
            desired, why = busy, f"{why}; {count(busy, 'busy replica')} may finish first"
        self._desired = desired
        return Decision(desired, lambda: f"{live} of {desired}: {why}", cause, next_at)

    def _silent(self, now: float) -> tuple[int, str, Cause, float | None]:
        self._silent_since = min(self._silent_since, now)
        ends_at = self._silent_since + self._policy.window_s
        silent = f"all queries have been 0 for {seconds(now - self._silent_since)}"
        if self._on and now < ends_at:
            why = f"{silent}, off after {seconds(self._policy.window_s)}"
            return self._desired, why, Cause.KEPT, ends_at
        self._on = False
        return 0, silent, Cause.IDLE, None

    @staticmethod
    def _judged(reading: Reading, now: float) -> Reading:
        if reading.value is not None and math.isnan(reading.value):
            return Reading(None, "a query returns NaN", reading.at)
        if reading.value is not None and now - reading.at > STALE_S:
            return Reading(None, f"the last result is {seconds(now - reading.at)} old", reading.at)
        return reading
