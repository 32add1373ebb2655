"""How fast a wish for more replicas is granted: windows, step limits, `disabled`."""

from __future__ import annotations

from hotplate.autoscaler.policy import Behavior, Policy
from hotplate.autoscaler.rules.proposal import Claim, seconds
from hotplate.autoscaler.rules.windows import Delayed, WindowMin

STEP_S = 15.0
"""Period of the step limits; Kubernetes' and BentoCloud's."""
STEP_REPLICAS = 4
"""At least this many replicas may be added in a period, however few there are; as theirs."""


class Restraint:
    """Remembers wishes and decisions to hold new wishes against; begins with `live` replicas."""

    def __init__(self, policy: Policy, live: int, now: float) -> None:
        self._policy = policy
        self._window_s = policy.up_window_s
        self._wishes = WindowMin(self._window_s, live)
        self._decided = Delayed(STEP_S, live, now)

    def decided(self, replicas: int, now: float) -> None:
        """From `now` on there should be this many replicas."""
        self._decided.record(replicas, now)

    def grant(self, wish: Claim, floor: int, proven: int, now: float) -> Claim:
        """As much of the wish as may be had now; up to `floor` replicas nothing holds it back.

        Nor do our own steps up to `proven`, as many as an earlier demand had work for: they are
        there against a demand that nobody has seen, and a burst that comes back is none.
        """
        if self._window_s:
            self._wishes.record(wish.replicas, now)
        if wish.replicas <= floor or floor >= self._policy.max_replicas:
            return wish
        if self._policy.scale_up_behavior is Behavior.DISABLED:
            return wish.held_to(floor, "scale_up_behavior is disabled")
        free = floor if self._policy.says_how_to_go_up else max(floor, proven)
        if self._window_s:
            wish = self._within_window(wish, floor, now)
        return self._within_step(wish, free, now)

    def _within_window(self, wish: Claim, floor: int, now: float) -> Claim:
        least = max(floor, int(self._wishes.min(now)))
        if least >= wish.replicas:
            return wish
        window = f"{seconds(self._window_s)} ({self._policy.up_source})"
        why = f"{wish.replicas} wanted, {least} until more were wanted for {window}"
        return wish.held_to(least, why, self._wishes.rises_above(least))

    def _within_step(self, wish: Claim, floor: int, now: float) -> Claim:
        before = int(self._decided.value(now))
        if self._policy.scale_up_behavior is Behavior.STABLE:
            limit, rule = 2 * before, "+100 %"
        else:
            limit, rule = max(2 * before, before + STEP_REPLICAS), f"+100 % or +{STEP_REPLICAS}"
        limit = max(floor, limit)
        if limit >= wish.replicas:
            return wish
        next_at = min(wish.next_at, self._decided.changes_at())
        why = f"{wish.replicas} wanted, at most {rule} in {seconds(STEP_S)}"
        return wish.held_to(limit, why, next_at)
