"""The pods of the release itself: what there is of control plane, gateways and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import POD
from hotplate.deploy.cluster.mirror import Mirror
from hotplate.deploy.cluster.names import PART_OF, PRODUCT
from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.cluster.pods import is_over
from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.machine.address import Address
from hotplate.machine.background import BackgroundTasks

AGENT_PORT = 7900
OURS = {"labelSelector": f"{PART_OF}={PRODUCT}"}
NAME = "app.kubernetes.io/name"
AGENT = "hotplate-agent"
AGENT_S = 5.0
"""How long an agent may take to answer."""
AGAIN_S = 15.0
"""An agent that was started anew knows nobody who may read its metrics."""


class ReleasePods:
    """Those of a release, and what its agents say."""

    def __init__(
        self, api: ClusterApi, release: str, token: str, *, agent_port: int = AGENT_PORT
    ) -> None:
        """`token` is the cluster's."""
        self._token, self._agent_port = token, agent_port
        self._mirrors = [
            Mirror(api, POD, namespace, OURS, _nothing)
            for namespace in (release, f"{release}-agents")
        ]
        self._tasks = BackgroundTasks()
        self._readers: Sequence[MetricsReader] | None = None
        self._readers_changed = asyncio.Event()
        self._clients: dict[Address, AgentClient] = {}

    def start(self) -> None:
        for mirror in self._mirrors:
            self._tasks.start(mirror.run(), name="pods of the release")
        self._tasks.start(self._tell_readers(), name="readers of agents' metrics")

    async def close(self) -> None:
        await self._tasks.cancel()
        for client in self._clients.values():
            await client.close()

    def roles(self) -> list[dict[str, Any]]:
        """As `role_state` shows processes of one machine: `name`, `since` (Unix seconds),
        `restarts`, `last_end`, `runs`, and the `node`."""
        return sorted(map(_role, self._pods()), key=lambda role: str(role["name"]))

    def may_go_on(self, gateway: str, come: Collection[str]) -> bool:
        """Whether a gateway that is not connected may run out of sight: while its pod is there, or
        nobody knows whether it is, and no later one of that pod has `come`. From any thread."""
        pod = _pod_of(gateway)
        if any(_pod_of(each) == pod and each > gateway for each in come):
            return False
        known = all(mirror.listed.is_set() for mirror in self._mirrors)
        return not known or pod in {each["metadata"]["name"] for each in self._pods()}

    def install_readers(self, readers: Sequence[MetricsReader]) -> None:
        """These may read the metrics of agents from now on."""
        self._readers = readers
        self._readers_changed.set()

    async def lost_agents(self) -> str:
        """A sentence for those that do not answer; empty where all do."""
        agents = list(self._agents())
        answers = await asyncio.gather(*(self._answers(address) for _, address in agents))
        lost = [node for (node, _), answered in zip(agents, answers, strict=True) if not answered]
        if not lost:
            return ""
        return (
            f"the agent of {', '.join(sorted(lost))} does not answer: replicas that are ready go "
            "on, and none can start there until it does; see the log of its pod"
        )

    async def agent_troubles(self) -> str:
        """What agents say that they are short of."""
        return " ".join(await self._said(AgentClient.troubles))

    async def refused_volumes(self) -> list[str]:
        """What agents say that they have refused lately."""
        return await self._said(AgentClient.refusals)

    async def holdings(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """What the agents that answer have of files, by node."""
        agents = list(self._agents())
        said = await asyncio.gather(*(self._held(address) for _, address in agents))
        told = zip(agents, said, strict=True)
        return {node: held for (node, _), held in told if held is not None}

    def _pods(self) -> Iterator[Manifest]:
        """Those that have not ended for good: one that was evicted stays among the others."""
        for mirror in self._mirrors:
            for pod in list(mirror.objects.values()):  # as it is now: whoever asks may be a thread
                if not is_over(pod):
                    yield pod

    def _agents(self) -> Iterator[tuple[str, Address]]:
        """Node and address of each that runs."""
        for pod in self._pods():
            ours = (pod["metadata"].get("labels") or {}).get(NAME) == AGENT
            ip = pod["status"].get("podIP")
            if ours and ip and pod["status"].get("phase") == "Running":
                yield pod["spec"].get("nodeName", ""), Address(ip, self._agent_port)

    def _client(self, address: Address) -> AgentClient:
        if address not in self._clients:
            url = f"http://{address}"
            self._clients[address] = AgentClient(url, self._token, patience_s=0.0)
        return self._clients[address]

    async def _answers(self, address: Address) -> bool:
        try:
            async with asyncio.timeout(AGENT_S):
                await self._client(address).check()
        except (CacheError, TimeoutError):
            return False
        return True

    async def _said(self, ask: Callable[[AgentClient], Awaitable[Sequence[str]]]) -> list[str]:
        """The sentences of all agents that answer, each with its node."""
        agents = sorted(self._agents(), key=lambda agent: agent[0])

        async def of(address: Address) -> Sequence[str]:
            try:
                async with asyncio.timeout(AGENT_S):
                    return await ask(self._client(address))
            except (CacheError, TimeoutError):
                return ()  # `lost_agents` says so

        said = await asyncio.gather(*(of(address) for _, address in agents))
        told = zip(agents, said, strict=True)
        return [f"{node}: {each}" for (node, _), sentences in told for each in sentences]

    async def _held(self, address: Address) -> Sequence[Mapping[str, Any]] | None:
        try:
            async with asyncio.timeout(AGENT_S):
                return await self._client(address).held()
        except (CacheError, TimeoutError):
            return None

    async def _tell(self, address: Address, readers: Sequence[MetricsReader]) -> None:
        with suppress(CacheError, TimeoutError):  # it is told again
            async with asyncio.timeout(AGENT_S):
                await self._client(address).set_readers(readers)

    async def _tell_readers(self) -> None:
        while True:
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._readers_changed.wait()
            except TimeoutError:
                await self._forget_gone()
            self._readers_changed.clear()
            if (readers := self._readers) is not None:
                await asyncio.gather(
                    *(self._tell(address, readers) for _, address in self._agents())
                )

    async def _forget_gone(self) -> None:
        there = {address for _, address in self._agents()}
        for address in self._clients.keys() - there:
            await self._clients.pop(address).close()


def _nothing() -> None:
    """Whoever asks looks at what there is."""


def _pod_of(gateway: str) -> str:
    """The pod of a gateway's id, as `NetworkFleet` makes it."""
    return gateway.split("-", 2)[-1]


def _role(pod: Manifest) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses") or [{}]
    container = statuses[0]  # each has one
    ended = (container.get("lastState") or {}).get("terminated") or {}
    said = str(ended.get("message") or ended.get("reason") or "").strip()
    running = (container.get("state") or {}).get("running") or {}
    began = running.get("startedAt") or pod["status"].get("startTime")
    return {
        "name": pod["metadata"]["name"],
        "node": pod["spec"].get("nodeName", ""),
        "since": datetime.fromisoformat(began).timestamp() if began else 0.0,
        "restarts": int(container.get("restartCount", 0)),
        "last_end": said.splitlines()[-1] if said else "",
        "runs": bool(container.get("ready")),
    }
