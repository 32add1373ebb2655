"""How many slots the replicas of a deployment have, by service, and where each number comes from;
no I/O. What a replica reports of its methods, and what gateways learn, is stored per revision."""

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
    """What knows the slots of replicas."""

    def of(self, service: Service) -> SlotCount: ...
    def initial(self, replica: Replica, service: Service) -> int: ...


CHANGE_FACTOR = 1.25
"""A learnt number changes the routes only by this factor or more, since each change sends a new
table to all gateways. The gateway that learnt the number uses it already."""


class SlotCounts:
    """The slots of one deployment's replicas, per service and revision."""

    def __init__(self) -> None:
        self._reports: dict[WorkloadKey, Mapping[str, Any]] = {}
        """What a replica has reported of the service's methods."""
        self._numbers: dict[WorkloadKey, int] = {}
        """The number of slots learnt for the service: the median of its replicas."""
        self._learnt: Mapping[str, int] = {}
        """The number learnt for each replica."""
        self._initial: dict[str, int] = {}
        """The number for each replica in the routes, which follows the learnt one roughly."""
        self._unsaved: set[WorkloadKey] = set()
        """Services whose announced origin is in no stored memory yet."""
        self._announced: dict[WorkloadKey, str] = {}
        """Where the number comes from, as last announced by an event."""
        self._label = ""

    def update(
        self,
        services: Iterable[Service],
        replicas: Sequence[Replica],
        demands: Iterable[RouteDemand],
        label: str,
    ) -> list[str]:
        """Take in what replicas report and gateways have learnt; `label` is the deployment's.

        Returns a sentence for each service whose number now comes from elsewhere.
        """
        self._label = label
        self._learnt = {id_: n for demand in demands for id_, n in demand.learnt.items()}
        rounded = {replica.id: self._rounded(replica.id) for replica in replicas}
        self._initial = {id_: number for id_, number in rounded.items() if number is not None}
        changes = []
        for service in services:
            key = service.workload.key
            own = [replica for replica in replicas if replica.key == key]
            reports = (replica.self_report for replica in own)
            if (report := next((one for one in reports if one), None)) is not None:
                self._reports[key] = report
            if known := [self._learnt[r.id] for r in own if r.id in self._learnt]:
                self._numbers[key] = round(median(known))
            found = self.of(service)
            if key in self._reports and self._announced.get(key) != found.why:
                self._announced[key] = found.why
                self._unsaved.add(key)
                changes.append(f"service '{key.service}': {found.text()}")
        return changes

    def restore(self, service: Service, memory: Mapping[str, Any] | None) -> None:
        """Take over the stored `memory` of this revision of the service, where none is known."""
        key, stored = service.workload.key, (memory or {}).get("slots")
        if key in self._reports or not isinstance(stored, dict):
            return
        report, number = methods.checked(stored.get("told")), stored.get("number")
        if stored.get("revision") == key.revision and report is not None:
            self._reports[key] = report
            self._announced[key] = str(stored.get("said", ""))
            if isinstance(number, int) and number > 0:
                self._numbers[key] = number

    def is_saved(self, key: WorkloadKey) -> bool:
        """Whether the last stored memory has what was announced."""
        return key not in self._unsaved

    def memory(self, key: WorkloadKey) -> dict[str, Any] | None:
        """What to store of the service, as JSON; None = nothing is known."""
        if key not in self._reports:
            return None
        self._unsaved.discard(key)
        return {
            "revision": key.revision,
            "told": dict(self._reports[key]),
            "number": self._numbers.get(key, 0),
            "said": self._announced.get(key, ""),
        }

    def of(self, service: Service) -> SlotCount:
        """The slots that a new replica of the service begins with."""
        workload = service.workload
        return slots(
            workload.config,
            service.has_tasks,
            workload.resources.cpus,
            reported=self._reports.get(workload.key),
            label=self._label,
            learnt=self._numbers.get(workload.key, 0),
        )

    def number(self, replica: Replica, service: Service) -> int:
        """The slots that this replica has."""
        found = self.of(service)
        return self._learnt.get(replica.id, found.number) if found.learns else found.number

    def initial(self, replica: Replica, service: Service) -> int:
        """The slots of this replica for the routes: the set number, or roughly the learnt one."""
        found = self.of(service)
        return self._initial.get(replica.id, found.number) if found.learns else found.number

    def load(
        self, service: Service, demand: RouteDemand | None, tasks: RouteDemand | None
    ) -> tuple[int, RouteDemand | None]:
        """The slots of one replica for the demand that needs more replicas, and that demand: that
        of requests, or that of tasks where these have slots of their own. None = not reported."""
        found = self.of(service)
        if demand is None or tasks is None or not found.tasks:
            return found.number, demand
        for_tasks = math.ceil(tasks.demand / found.tasks)
        if for_tasks > math.ceil(demand.demand / found.number):
            return found.tasks, tasks
        return found.number, demand

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget all revisions but these."""
        current = frozenset(numbers)
        for known in (self._reports, self._numbers, self._announced):
            for key in [key for key in known if key.revision not in current]:
                del known[key]
        self._unsaved = {key for key in self._unsaved if key.revision in current}

    def _rounded(self, replica: str) -> int | None:
        now, before = self._learnt.get(replica), self._initial.get(replica)
        if now is None or (
            before is not None and before / CHANGE_FACTOR <= now <= before * CHANGE_FACTOR
        ):
            return before
        return now
