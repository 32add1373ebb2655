"""How many slots the replicas of a deployment have, service by service, and where each number is
from; no I/O. What a replica says of its methods, and what gateways learn, is kept per revision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Protocol

from hotplate.deploy.engine import Replica, WorkloadKey
from hotplate.platform.controller.workloads import Service
from hotplate.serving.gateway.routes import RouteDemand
from hotplate.serving.replica import methods
from hotplate.serving.replica.slots import Slots, slots


class SlotSource(Protocol):
    """Knows the slots of replicas."""

    def of(self, service: Service) -> Slots: ...
    def number(self, replica: Replica, service: Service) -> int: ...


class SlotCounts:
    """Of one deployment."""

    def __init__(self) -> None:
        self._told: dict[WorkloadKey, Mapping[str, Any]] = {}
        """What a replica has said of the service."""
        self._numbers: dict[WorkloadKey, int] = {}
        """What its replicas have come to."""
        self._learnt: Mapping[str, int] = {}
        """The same of each that is there."""
        self._said: dict[WorkloadKey, str] = {}
        """Where the number is from, as somebody was told."""
        self._label = ""

    def follow(
        self,
        services: Iterable[Service],
        replicas: Sequence[Replica],
        demands: Iterable[RouteDemand],
        label: str,
    ) -> list[str]:
        """Takes up what replicas say and gateways have learnt; `label` is the deployment's.

        A sentence for each service of which it is news where its number is from.
        """
        self._label = label
        self._learnt = {id_: n for demand in demands for id_, n in demand.learnt.items()}
        news = []
        for service in services:
            key = service.workload.key
            own = [replica for replica in replicas if replica.key == key]
            if (told := next((r.told for r in own if r.told is not None), None)) is not None:
                self._told[key] = told
            if known := [self._learnt[r.id] for r in own if r.id in self._learnt]:
                self._numbers[key] = round(median(known))
            found = self.of(service)
            if key in self._told and self._said.get(key) != found.why:
                self._said[key] = found.why
                news.append(f"service '{key.service}': {found.told()}")
        return news

    def recall(self, service: Service, memory: Mapping[str, Any] | None) -> None:
        """Takes up what was remembered of this revision of the service, where nothing is known."""
        key, kept = service.workload.key, (memory or {}).get("slots")
        if key in self._told or not isinstance(kept, dict):
            return
        told, number = methods.checked(kept.get("told")), kept.get("number")
        if kept.get("revision") == key.revision and told is not None:
            self._told[key] = told
            self._said[key] = str(kept.get("said", ""))
            if isinstance(number, int) and number > 0:
                self._numbers[key] = number

    def memory(self, key: WorkloadKey) -> dict[str, Any] | None:
        """What to remember of it, as JSON; None = nothing is known."""
        if key not in self._told:
            return None
        return {
            "revision": key.revision,
            "told": dict(self._told[key]),
            "number": self._numbers.get(key, 0),
            "said": self._said.get(key, ""),
        }

    def of(self, service: Service) -> Slots:
        """What a replica of the service begins with."""
        workload = service.workload
        return slots(
            workload.config,
            service.has_tasks,
            workload.resources.cpus,
            told=self._told.get(workload.key),
            label=self._label,
            learnt=self._numbers.get(workload.key, 0),
        )

    def number(self, replica: Replica, service: Service) -> int:
        """What this replica has."""
        found = self.of(service)
        return self._learnt.get(replica.id, found.number) if found.learns else found.number

    def load(
        self, service: Service, demand: RouteDemand | None, tasks: RouteDemand | None
    ) -> tuple[int, RouteDemand | None]:
        """What a replica takes at a time of the demand that wants most of them, and that demand:
        its requests', or its tasks' where those have slots of their own. None = not heard of."""
        found = self.of(service)
        if demand is None or tasks is None or not found.tasks:
            return found.number, demand
        for_tasks = math.ceil(tasks.demand / found.tasks)
        if for_tasks > math.ceil(demand.demand / found.number):
            return found.tasks, tasks
        return found.number, demand

    def forget(self, numbers: Iterable[int]) -> None:
        """Of other revisions than these nothing is known any more."""
        kept = frozenset(numbers)
        for known in (self._told, self._numbers, self._said):
            for key in [key for key in known if key.revision not in kept]:
                del known[key]
