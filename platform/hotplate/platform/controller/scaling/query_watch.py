"""Keeps asking what the queries of binary deployments say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from hotplate.autoscaler.binary import Reading
from hotplate.platform.controller.scaling.prometheus import Prometheus
from hotplate.platform.spec.annotations import BinarySpec

EVERY_S = 15.0
"""Between two answers to the same query: as often as a Prometheus usually scrapes."""


class QueryWatch:
    """`changed` is called with a deployment's id when its queries were asked again."""

    def __init__(self, prometheus: Prometheus, changed: Callable[[int], None]) -> None:
        self._prometheus = prometheus
        self._changed = changed
        self._followed: dict[int, BinarySpec] = {}
        self._readings: dict[int, Sequence[Reading]] = {}
        self._has_changed = asyncio.Event()

    def follow(self, deployment_id: int, binary: BinarySpec | None) -> Sequence[Reading]:
        """The last answers to a deployment's queries, none at first; None = it has no queries."""
        if binary != self._followed.get(deployment_id):
            self._readings.pop(deployment_id, None)
            self._followed.pop(deployment_id, None)
            if binary is not None:
                self._followed[deployment_id] = binary
                self._has_changed.set()
        return self._readings.get(deployment_id, ())

    async def run(self) -> None:
        """Ask until cancelled: what is new at once, all of them every `EVERY_S`."""
        while True:
            self._has_changed.clear()
            await asyncio.gather(*(self._ask(*item) for item in self._followed.items()))
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._has_changed.wait()

    async def _ask(self, deployment_id: int, binary: BinarySpec) -> None:
        asked = (self._prometheus.read(query, binary.up) for query in binary.asked)
        readings = await asyncio.gather(*asked)
        if self._followed.get(deployment_id) == binary:
            self._readings[deployment_id] = readings
            self._changed(deployment_id)
