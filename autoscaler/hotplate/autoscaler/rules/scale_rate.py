"""How fast a proposal of more replicas is granted: windows, step limits, `disabled`."""

from __future__ import annotations

from hotplate.autoscaler.policy import Behavior, Policy
from hotplate.autoscaler.rules.proposal import Proposal, seconds
from hotplate.autoscaler.rules.windows import Delayed, WindowMin

STEP_S = 15.0
"""Period of the step limits; the value of Kubernetes and BentoCloud."""
QUEUED_STEP_S = 5.0
"""Period of our own step limit for replicas whose requests are there. What is only expected to come
has the longer one: with this one, a public trace of bursts takes 4 to 6 % more GPU-hours for the
same waits."""
STEP_REPLICAS = 4
"""At least this many replicas may be added in a period, however few there are; also theirs."""


class ScaleRate:
    """Limits a proposal by earlier proposals and decisions; begins with `live` replicas."""

    def __init__(self, policy: Policy, live: int, now: float) -> None:
        self._policy = policy
        self._window_s = policy.up_window_s
        self._proposed = WindowMin(self._window_s, live)
        self._decided = Delayed(STEP_S, live, now)
        self._decided_lately = Delayed(QUEUED_STEP_S, live, now)

    def decided(self, replicas: int, now: float) -> None:
        """From `now` on this many replicas are desired."""
        self._decided.record(replicas, now)
        self._decided_lately.record(replicas, now)

    def grant(self, proposal: Proposal, floor: int, proven: int, now: float) -> Proposal:
        """The part of the proposal that is granted now; up to `floor` replicas nothing limits it.

        Our own step limit does not apply up to `proven` replicas, which an earlier demand has
        filled: it is a precaution against a demand never seen before, and a burst that returns is
        not one.
        """
        if self._window_s:
            self._proposed.record(proposal.replicas, now)
        if proposal.replicas <= floor or floor >= self._policy.max_replicas:
            return proposal
        if self._policy.scale_up_behavior is Behavior.DISABLED:
            return proposal.limited_to(floor, "scale_up_behavior is disabled")
        free = floor if self._policy.sets_scale_up else max(floor, proven)
        if self._window_s:
            proposal = self._within_window(proposal, floor, now)
        return self._within_step(proposal, free, now)

    def _within_window(self, proposal: Proposal, floor: int, now: float) -> Proposal:
        least = max(floor, int(self._proposed.min(now)))
        if least >= proposal.replicas:
            return proposal
        window = f"{seconds(self._window_s)} ({self._policy.up_source})"
        why = f"{proposal.replicas} proposed, {least} until more have been proposed for {window}"
        return proposal.limited_to(least, why, self._proposed.rises_above(least))

    def _within_step(self, proposal: Proposal, floor: int, now: float) -> Proposal:
        stable = self._policy.scale_up_behavior is Behavior.STABLE
        limit, step_s = max(floor, _step(self._decided.value(now), stable=stable)), STEP_S
        next_at = min(proposal.next_at, self._decided.changes_at())
        if not self._policy.sets_scale_up:
            there = proposal.replicas - proposal.forecast
            allowed = _step(self._decided_lately.value(now))
            if max(limit, allowed) < there:
                step_s = QUEUED_STEP_S
                next_at = min(next_at, self._decided_lately.changes_at(), now + QUEUED_STEP_S)
            limit = max(limit, min(there, allowed))
        if limit >= proposal.replicas:
            return proposal
        rule = "+100 %" if stable else f"+100 % or +{STEP_REPLICAS}"
        why = f"{proposal.replicas} proposed, at most {rule} in {seconds(step_s)}"
        # What is granted now allows more when the period of this grant is over.
        return proposal.limited_to(limit, why, min(next_at, now + STEP_S))


def _step(before: float, *, stable: bool = False) -> int:
    """How many there may be where there were so many a period ago."""
    return int(2 * before if stable else max(2 * before, before + STEP_REPLICAS))
