"""How many slots the replicas of a deployment have, service by service, and where each number is
from; no I/O. What a replica says of its methods, and what gateways learn, is kept per revision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Protocol

from hotplate.deploy.engine import Replica
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.workloads import Service
from hotplate.serving.gateway.protocol.routes import RouteDemand
from hotplate.serving.replica.inside import methods
from hotplate.serving.replica.slots import SlotCount, slots


class SlotSource(Protocol):
    """Knows the slots of replicas."""

    def of(self, service: Service) -> SlotCount: ...
    def begins(self, replica: Replica, service: Service) -> int: ...


FAR = 1.25
"""By what factor a learnt number is another one to the routes: each change is a new table for all
gateways, and who has learnt it goes by what he knows."""


class SlotCounts:
    """The slots of one deployment's replicas, per service and revision."""

    def __init__(self) -> None:
        self._told: dict[WorkloadKey, Mapping[str, Any]] = {}
        """What a replica has said of the service."""
        self._numbers: dict[WorkloadKey, int] = {}
        """What its replicas have come to."""
        self._learnt: Mapping[str, int] = {}
        """The same of each that is there."""
        self._begins: dict[str, int] = {}
        """About the same, as the routes say it."""
        self._unkept: set[WorkloadKey] = set()
        """Those of which somebody was told what no memory says yet."""
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
        said = {replica.id: self._about(replica.id) for replica in replicas}
        self._begins = {id_: number for id_, number in said.items() if number is not None}
        news = []
        for service in services:
            key = service.workload.key
            own = [replica for replica in replicas if replica.key == key]
            reports = (replica.self_report for replica in own)
            if (told := next((one for one in reports if one is not None), None)) is not None:
                self._told[key] = told
            if known := [self._learnt[r.id] for r in own if r.id in self._learnt]:
                self._numbers[key] = round(median(known))
            found = self.of(service)
            if key in self._told and self._said.get(key) != found.why:
                self._said[key] = found.why
                self._unkept.add(key)
                news.append(f"service '{key.service}': {found.text()}")
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

    def is_kept(self, key: WorkloadKey) -> bool:
        """Whether its last memory says what somebody was told."""
        return key not in self._unkept

    def memory(self, key: WorkloadKey) -> dict[str, Any] | None:
        """What to remember of it, as JSON; None = nothing is known."""
        if key not in self._told:
            return None
        self._unkept.discard(key)
        return {
            "revision": key.revision,
            "told": dict(self._told[key]),
            "number": self._numbers.get(key, 0),
            "said": self._said.get(key, ""),
        }

    def of(self, service: Service) -> SlotCount:
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

    def begins(self, replica: Replica, service: Service) -> int:
        """What this replica has where the number is set, and about what it has where it learns."""
        found = self.of(service)
        return self._begins.get(replica.id, found.number) if found.learns else found.number

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
        """Forget what is known of revisions other than these."""
        kept = frozenset(numbers)
        for known in (self._told, self._numbers, self._said):
            for key in [key for key in known if key.revision not in kept]:
                del known[key]
        self._unkept = {key for key in self._unkept if key.revision in kept}

    def _about(self, replica: str) -> int | None:
        now, before = self._learnt.get(replica), self._begins.get(replica)
        if now is None or (before is not None and before / FAR <= now <= before * FAR):
            return before
        return now
