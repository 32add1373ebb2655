"""Asks the platform once a second how the deployment is that is being loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from hotplate.platform.errors import PlatformError
from hotplate.platform.loadtest.asking.target import Ask, page_of
from hotplate.platform.loadtest.observation import Observation, ObservedRun

PERIOD_S = 1.0
ENDS_S = 5.0
"""How long the last question is waited for."""
COLD_STARTS = 1000
"""The newest that are looked at."""


class PlatformWatch:
    """A thread, from `start` until `stop`. A question without an answer is a gap in what it has."""

    def __init__(self, ask: Ask, name: str, clock: Callable[[], float]) -> None:
        """`clock` says the seconds since the load test's second 0."""
        self._ask = ask
        self._path = page_of(name)
        self._clock = clock
        self._observations: list[Observation] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="platform-watch", daemon=True)

    @property
    def latest(self) -> Observation | None:
        return self._observations[-1] if self._observations else None

    def start(self) -> None:
        self._thread.start()

    def stop(self, since: float) -> ObservedRun:
        """What was seen, with the cold starts that began at `since` (Unix seconds) or later."""
        self._ended.set()
        self._thread.join(ENDS_S)
        try:
            starts = self._ask(f"{self._path}/cold_starts?count={COLD_STARTS}")
        except PlatformError:
            starts = []
        began = datetime.fromtimestamp(since, UTC)
        meanwhile = [one for one in starts if datetime.fromisoformat(one["created_at"]) >= began]
        return ObservedRun(tuple(self._observations), tuple(reversed(meanwhile)))

    def _look(self) -> None:
        while not self._ended.is_set():
            at_s = self._clock()
            try:
                page = self._ask(self._path)
            except PlatformError:
                pass  # it restarts, or is too busy: the next second may know more
            else:
                self._observations.append(observation(page, at_s))
            self._ended.wait(max(0.0, at_s + PERIOD_S - self._clock()))


def observation(page: Mapping[str, Any], at_s: float) -> Observation:
    """Of the platform's page on a deployment, summed up over its services."""
    live = page["live"]
    services, replicas = live["services"], live["replicas"]
    ready = [each for each in replicas if each["state"] == "ready"]
    return Observation(
        at_s=at_s,
        queued=sum(each["queued"] for each in services),
        in_flight=sum(each["in_flight"] for each in services),
        ready=len(ready),
        starting=sum(each["state"] == "starting" for each in replicas),
        slots=sum(each["slots"]["number"] for each in ready if each["slots"]),
        gpus=max((each.get("gpus", 0.0) for each in services), default=0.0),
    )
