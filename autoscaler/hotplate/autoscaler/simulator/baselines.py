"""The rules of other autoscalers, with their published constants, to compare ours with.

Each is only the rule, applied to the demand that our gateway counts, so that it loses nothing by
late sampling. All of them wake a sleeping deployment at once when a request comes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from hotplate.autoscaler.policy import Decision, Demand, Replicas
from hotplate.autoscaler.rules.windows import WindowMean

ROUNDING = 1e-9
"""A value that is above a whole number by no more than this is that number."""
MARGIN_S = 0.001
"""A rule decides this much before its result can change, since means are rounded too."""


def _ceil(value: float) -> int:
    """The ceiling, tolerant of the rounding error of a sum of floats."""
    return math.ceil(value - ROUNDING)


class Ticking:
    """Decides at fixed times while there is demand or a replica, and at once to wake."""

    tick_s: float

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.total = 0

    def changed(self, total: int, live: int, now: float) -> float:
        self.total = total
        if not live and total:
            return now
        return self._next_tick(now)

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        """None of these rules learns from cold starts; the next tick is soon enough."""
        return self._next_tick(now)

    def _next_tick(self, now: float) -> float:
        return (math.floor(now / self.tick_s + 1e-9) + 1) * self.tick_s

    def _step(
        self,
        desired: int,
        live: int,
        now: float,
        why: Callable[[], str],
        steady_until: float = -math.inf,
    ) -> Decision:
        """`steady_until`: before that the last replica stays, if no request comes: the ticks until
        then are left out."""
        if not self.total:
            if not desired and not live:
                return Decision(desired, why)
            if desired == live == 1 and steady_until > now:
                tick = math.ceil((steady_until - MARGIN_S) / self.tick_s) * self.tick_s
                return Decision(desired, why, next_at=max(tick, self._next_tick(now)))
        return Decision(desired, why, next_at=self._next_tick(now))


class KnativeKpa(Ticking):
    """Knative Serving's KPA: autoscaler/scaling, reconciler/autoscaling/kpa; its defaults."""

    tick_s = 2.0
    STABLE_S = 60.0
    PANIC_S = 6.0
    UTILIZATION = 0.7
    PANIC_THRESHOLD = 2.0
    MAX_UP = 1000.0
    MAX_DOWN = 2.0
    GRACE_S = 30.0

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency)
        self._target = concurrency * self.UTILIZATION
        self._stable = WindowMean(self.STABLE_S)
        self._panic = WindowMean(self.PANIC_S)
        self._panic_since = -math.inf
        self._panic_replicas = 0
        self._inactive_since = math.inf

    def changed(self, total: int, live: int, now: float) -> float:
        self._stable.record(total, now)
        self._panic.record(total, now)
        return super().changed(total, live, now)

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        ready, live, total = replicas.ready, replicas.live, self.total
        stable, panic = self._stable.mean(now), self._panic.mean(now)
        if not live:
            return self._step(int(total > 0), live, now, lambda: "the activator has a request")
        most = _ceil(self.MAX_UP * max(1, ready))
        least = math.floor(ready / self.MAX_DOWN)
        wanted = min(max(_ceil(stable / self._target), least), most)
        panic_wanted = min(max(_ceil(panic / self._target), least), most)
        if panic_wanted / max(1, ready) >= self.PANIC_THRESHOLD:
            self._panic_since = now
        elif now > self._panic_since + self.STABLE_S:
            self._panic_since, self._panic_replicas = -math.inf, 0
        if self._panic_since > -math.inf:
            self._panic_replicas = max(self._panic_replicas, panic_wanted)
            return self._step(self._panic_replicas, live, now, lambda: f"panic at {panic:.2f}")
        desired = self._awake(wanted, stable, now)
        steady_until = self._inactive_since + self.GRACE_S if not stable else now
        if stable and not total and desired == 1:
            steady_until = self._stable.falls_to(0.0)
        return self._step(desired, live, now, lambda: f"stable at {stable:.2f}", steady_until)

    def _awake(self, wanted: int, stable: float, now: float) -> int:
        """The last replica stops a grace period after the stable window has no demand."""
        if wanted or stable > 0:
            self._inactive_since = math.inf
            return max(1, wanted)
        self._inactive_since = min(self._inactive_since, now)
        return int(now < self._inactive_since + self.GRACE_S)


class Hpa(Ticking):
    """Kubernetes' HPA v2 on concurrency, extended to zero and back.

    `down_s`: the stabilization window on the way down, and the idle time before zero, seconds.
    """

    tick_s = 15.0
    TOLERANCE = 0.1
    STEP_REPLICAS = 4

    def __init__(self, concurrency: int, down_s: float = 300.0) -> None:
        super().__init__(concurrency)
        self._down_s = down_s
        self._wanted: list[tuple[float, int]] = []
        self._idle_since = math.inf

    def changed(self, total: int, live: int, now: float) -> float:
        self._idle_since = math.inf if total else min(self._idle_since, now)
        return super().changed(total, live, now)

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        live, total = replicas.live, self.total
        if not live:
            self._wanted.clear()
            return self._step(int(total > 0), live, now, lambda: "a request came")
        if now >= self._idle_since + self._down_s:
            return self._step(0, live, now, lambda: f"idle for {self._down_s:.0f} s")
        ratio = total / (live * self.concurrency)
        near = abs(ratio - 1) <= self.TOLERANCE + ROUNDING
        wanted = live if near else max(1, _ceil(total / self.concurrency))
        wanted = min(wanted, max(2 * live, live + self.STEP_REPLICAS))
        self._wanted = [(at, one) for at, one in self._wanted if at > now - self._down_s]
        self._wanted.append((now, wanted))
        if wanted < live:
            wanted = min(live, max(one for _, one in self._wanted))
        steady_until = self._idle_since + self._down_s
        return self._step(wanted, live, now, lambda: f"{total} requests on {live}", steady_until)


class BentoCloud(Hpa):
    """BentoCloud's defaults: `fast` up, `stable` down, which is the HPA with 600 s."""

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency, down_s=600.0)


class Averaging(Ticking, ABC):
    """Follows the mean demand of a window; target = concurrency."""

    window_s: float
    DOWN_S: float

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency)
        self._mean = WindowMean(self.window_s)
        self._above_since = math.inf
        self._below_since = math.inf

    def changed(self, total: int, live: int, now: float) -> float:
        self._mean.record(total, now)
        return super().changed(total, live, now)

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        live, mean = replicas.live, self._mean.mean(now)
        if not live:
            return self._step(int(self.total > 0), live, now, lambda: "a request came")
        wanted = _ceil(mean / self.concurrency)
        self._above_since = min(self._above_since, now) if wanted > live else math.inf
        self._below_since = min(self._below_since, now) if wanted < live else math.inf
        if self._is_due(now):
            return self._step(wanted, live, now, lambda: f"mean {mean:.2f}")
        if wanted < live:
            steady_until = self._below_since + self.DOWN_S
        elif wanted == live == 1 and not self.total:
            steady_until = self._mean.falls_to(ROUNDING * self.concurrency)
        else:
            steady_until = now
        return self._step(
            live, live, now, lambda: f"mean {mean:.2f}, not for long enough", steady_until
        )

    @abstractmethod
    def _is_due(self, now: float) -> bool:
        """Whether the wanted number has been above or below for long enough: rules differ in how
        long that is."""


class RayServe(Averaging):
    """Ray Serve's autoscaling policy, with its defaults except for the target."""

    tick_s = 10.0
    """It decides every 0.1 s on metrics that come every 10 s."""
    window_s = 30.0
    UP_S = 30.0
    DOWN_S = 600.0

    def _is_due(self, now: float) -> bool:
        due = now >= self._above_since + self.UP_S or now >= self._below_since + self.DOWN_S
        if due:
            self._above_since = self._below_since = math.inf
        return due


class KubeAi(Averaging):
    """KubeAI's autoscaler, with its defaults except for the target."""

    tick_s = 10.0
    window_s = 600.0
    DOWN_S = 30.0

    def _is_due(self, now: float) -> bool:
        return now >= self._above_since or now >= self._below_since + self.DOWN_S


class ModalIdle:
    """Modal's rule: as many replicas as demand fills, at once; each stops when idle for 60 s."""

    IDLE_S = 60.0

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._idle_since: list[float] = []
        """When demand fell below each unneeded level, the highest first."""

    def changed(self, total: int, live: int, now: float) -> float:
        return now

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        """Cold starts do not matter to this rule."""
        return math.inf

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        live = replicas.live
        needed = -(-demand.total // self._concurrency)
        idle = self._idle_since[: max(0, live - needed)]
        idle += [now] * (max(0, live - needed) - len(idle))
        self._idle_since = idle = [since for since in idle if now < since + self.IDLE_S]
        return Decision(
            needed + len(idle),
            lambda: f"{needed} needed, {len(idle)} kept",
            next_at=min([since + self.IDLE_S for since in idle], default=None),
        )
