"""A controller without replicas: what is poked is done at once, in the real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.deploy.errors import UnknownReplica
from hotplate.deploy.process.growing_file import followed
from hotplate.deploy.quantities import GIB, resources_of
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.interface import UNSEEN, CallingReplica, Rollout
from hotplate.platform.controller.planning.addresses import CallTarget
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.tenancy import Tenancy
from hotplate.platform.controller.planning.workloads import WorkloadRules, least_amounts, notes
from hotplate.platform.controller.rollout import rollout_json
from hotplate.platform.errors import Alone
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.live.change_feed import ChangeFeed
from hotplate.platform.series.recorder import SeriesRecorder
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import DemandRecord, Deployment, DesiredState, RolloutOutcome

RULES = WorkloadRules(
    resources=resources_of,
    policy=policy_from,
    instance_types={f"cpu.{cpus}": InstanceType(Resources(cpus, 2 * GIB)) for cpus in (1, 2)},
    ceiling=Ceiling(Resources(2, 16 * GIB, 8), shares_cpus=True),
)


class FakeController:
    """Says `running` as soon as it is asked to, unless `failure` says how roll-outs end."""

    def __init__(self, store: Store) -> None:
        self.rules = RULES
        self.series = SeriesRecorder(store)
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self.changes = ChangeFeed()
        self.ready = asyncio.Event()
        self.ready.set()
        self.poked: list[int] = []
        self.asked: list[int] = []
        """Deployments whose outcome was waited for."""
        self.failure = ""
        self.under_way: Rollout | None = None
        """How a roll-out stands that does not end by itself."""
        self.replicas: list[dict[str, Any]] = []
        self.ready_replicas: dict[str, int] = {}
        """How many ready replicas each version of a canary has."""
        self.last_look: dict[str, Any] = {}
        """What it says of roll-outs, where it has not looked at them since."""
        self.lines = ["ready"]
        """What every replica has printed."""
        self.log_files: dict[str, Path] = {}
        """By replica."""
        self._news = asyncio.Event()
        self.quotas_changes = 0
        self.tokens_changes = 0
        self.tenancy = Tenancy()
        self.calling: dict[str, CallingReplica] = {}
        """Replicas that call others, by their keys."""
        self.unwritten: list[DemandRecord] = []
        self.target = CallTarget("http://127.0.0.1:9")
        """Where every deployment is called."""

    def call_target(self, deployment: Deployment) -> CallTarget:
        return self.target

    async def admit(self, organization: str) -> None:
        served = await self._store.run(self._store.deployments.served_organizations)
        if why := self.tenancy.refusal(organization, served):
            raise Alone(why)

    def replica_with(self, key: str) -> CallingReplica | None:
        return self.calling.get(key)

    def tokens_changed(self) -> None:
        self.tokens_changes += 1

    def poke(self, deployment_id: int) -> None:
        self.poked.append(deployment_id)
        task = asyncio.create_task(self._looked_at(deployment_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _looked_at(self, deployment_id: int) -> None:
        await self._store.run(self._reconcile, deployment_id)
        self.changes.changed(deployment_id)
        self.changes.written()

    async def outcome(self, deployment_id: int, timeout_s: float) -> None:
        self.asked.append(deployment_id)
        await self.settled()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.under_way is not None and not self.under_way.over:
                    self._news.clear()
                    await self._news.wait()

    def goes_on(self, rollout: Rollout | None) -> None:
        """How the roll-out stands from now on; None = as in the store."""
        self.under_way = rollout
        self._news.set()

    def rollout(self, deployment_id: int) -> Rollout:
        if self.under_way is not None:
            return self.under_way
        deployment = self._store.deployments.get(deployment_id)
        if deployment is None:
            return UNSEEN
        if self._tasks:
            return Rollout(deployment.reason)
        failed = deployment.latest.outcome is RolloutOutcome.FAILED
        tail = deployment.latest.log_tail
        return Rollout(deployment.reason, over=True, failed=failed, log_tail=tail)

    def live(self, deployment_id: int) -> dict[str, Any]:
        live: dict[str, Any] = {"services": [], "replicas": self.replicas}
        deployment = self._store.deployments.get(deployment_id)
        if deployment is not None:
            live["rollout"] = rollout_json(DeploymentState(deployment), [], {}) | self.last_look
            live["rollout"]["versions"] += [
                {
                    "version": version,
                    "revision": 1,
                    "bento": "",
                    "weight": deployment.canary.get("weights", {}).get(version, 0),
                    "share": 0.0,
                    "wanted": count,
                    "ready": count,
                    "answers": {},
                    "answered": 0,
                    "failed": 0,
                }
                for version, count in self.ready_replicas.items()
            ]
        return live

    def demands(self, deployment_id: int) -> Sequence[DemandRecord]:
        return self.unwritten

    async def logs(self, deployment_id: int, replica: str, lines: int) -> dict[str, list[str]]:
        return {replica or "replica-1": self.lines[-lines:]}

    def follow_log(
        self, deployment_id: int, replica: str, lines: int | None
    ) -> AsyncGenerator[str, None]:
        if replica not in self.log_files:
            raise UnknownReplica(f"no replica {replica}")

        def goes_on() -> bool:
            return replica in [one["id"] for one in self.live(deployment_id)["replicas"]]

        return followed(self.log_files[replica], lines, goes_on)

    def quotas_changed(self) -> None:
        self.quotas_changes += 1

    def least(
        self,
        manifest: Mapping[str, Any],
        config: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]],
    ) -> Amounts:
        return least_amounts(manifest, config, labels, self.rules)

    def notes(
        self, manifest: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Sequence[tuple[str, str]]:
        return notes(manifest, config, self.rules)

    def usage(self, organization: str) -> Amounts:
        return Amounts(replicas=2, cpus=1.5, memory_bytes=3 << 30)

    def instance_types(self) -> Sequence[dict[str, Any]]:
        requests = {"cpu": "1", "memory": "2Gi", "gpu": None}
        config = {"group": "cpu", "price": "0", "resources": {"requests": requests}}
        return [
            {"display_name": name, "description": "small", "config": config}
            for name in ("cpu.1", "cpu.2")
        ]

    async def settled(self) -> None:
        """Everything that was poked is done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _reconcile(self, deployment_id: int) -> None:
        deployment = self._store.deployments.get(deployment_id)
        if deployment is None:
            return
        match deployment.wanted:
            case DesiredState.DELETED:
                self._store.deployments.forget(deployment_id)
            case DesiredState.TERMINATED:
                self._store.deployments.set_status(deployment, "terminated", "it was terminated")
            case DesiredState.RUNNING if self.under_way is not None:
                self._store.deployments.set_status(deployment, "deploying", self.under_way.reason)
            case DesiredState.RUNNING if self.failure:
                latest = deployment.latest.id
                self._store.revisions.conclude_rollout(
                    latest, RolloutOutcome.FAILED, self.failure, self.failure, ["last line"]
                )
                self._store.deployments.set_status(deployment, "failed", self.failure)
            case DesiredState.RUNNING:
                latest = deployment.latest.id
                self._store.revisions.conclude_rollout(
                    latest, RolloutOutcome.READY, "", "revision 1"
                )
                self._store.deployments.set_status(deployment, "running", "")
