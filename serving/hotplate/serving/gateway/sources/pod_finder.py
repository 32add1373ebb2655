"""Finds the replicas of routes whose pods Kubernetes names, also while the control plane is away.

A pod counts when it has answered 200 to this gateway, whatever Kubernetes says of it: what
Kubernetes knows comes later than the worker's own word. One that terminates gets nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hotplate.serving.gateway.protocol.api_server import ApiServer
from hotplate.serving.gateway.protocol.routes import PodSource, Route, RouteTable
from hotplate.serving.gateway.replicas.fence import FenceLines
from hotplate.serving.gateway.replicas.probe import probe
from hotplate.serving.gateway.sockets.dialing import open_streams
from hotplate.serving.gateway.sources.pods import Pod, alive, with_pods
from hotplate.serving.gateway.sources.slice_watch import SliceWatch

ASK_S = 0.1
"""How often a pod that has not answered 200 yet is asked."""


class PodFinder:
    """The pods of one table's routes."""

    def __init__(self, api: ApiServer) -> None:
        self.news = asyncio.Event()
        """Set when other pods may have requests than before."""
        self._wanted = asyncio.Event()
        self._watch = SliceWatch(api, self._on_change)
        self._sources: Mapping[str, tuple[Route, PodSource]] = {}
        """By Service, of the last table."""
        self._answered: set[Pod] = set()
        """Those that have answered, as they were before they terminated."""
        self._asking: dict[Pod, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follows until cancelled, once a table has routes with pods."""
        await self._wanted.wait()
        try:
            await self._watch.run()
        finally:
            for asking in self._asking.values():
                asking.cancel()

    def complete(self, table: RouteTable) -> RouteTable:
        """The table with the pods that may have requests."""
        self._sources = {s.service: (route, s) for route in table.routes for s in route.pods}
        if self._sources:
            self._wanted.set()
        self._ask_new()
        routes = with_pods(table.routes, self._watch.pods, self._answered)
        return replace(table, routes=routes)

    # Inside

    def _on_change(self) -> None:
        self._ask_new()
        self.news.set()

    def _ask_new(self) -> None:
        """Asks those that are new, and forgets those that have gone."""
        there = self._pods_there()
        for pod in self._asking.keys() - there.keys():
            self._asking.pop(pod).cancel()
        self._answered &= {alive(pod) for pod in there}
        for pod, (route, source) in there.items():
            if not (pod.terminating or pod in self._answered or pod in self._asking):
                self._asking[pod] = asyncio.create_task(self._ask(pod, route, source))

    def _pods_there(self) -> Mapping[Pod, tuple[Route, PodSource]]:
        pods: Mapping[str, Sequence[Pod]] = self._watch.pods
        return {
            pod: found for service, found in self._sources.items() for pod in pods.get(service, ())
        }

    async def _ask(self, pod: Pod, route: Route, source: PodSource) -> None:
        fence = FenceLines(replace(source.like, uid=pod.uid), route.name)
        dial = partial(open_streams, pod.address)
        while await probe(dial, route.ready_path, fence):  # noqa: ASYNC110 - it says nothing itself
            await asyncio.sleep(ASK_S)
        self._answered.add(pod)
        self._asking.pop(pod, None)
        self.news.set()
