"""Our own route about what another policy, or another price, would have done with the requests that
a deployment had."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from typing import Any

from aiohttp import web

from hotplate.autoscaler.simulator.policies import POLICIES
from hotplate.platform.api.bentocloud.deployments import named_deployment
from hotplate.platform.api.hotplate.deployments import plain
from hotplate.platform.api.web.requests import body
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Busy, Conflict, Invalid
from hotplate.platform.spec.fields import suggestion
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment

MOST_S = 10.0
"""What it may take: it computes all the time."""
COMPARED = ("ours", "knative-kpa", "ray-serve", "bentocloud")
PRICE_MOST = 1_000_000
USUAL_COLD_START_S = 60.0


class SimulationRoutes:
    """One simulation at a time, as a process of its own that gives way to all others."""

    def __init__(self, store: Store, controller: ControllerApi) -> None:
        self._store = store
        self._controller = controller
        self._runs = False

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/api/v1/hotplate/deployments/{name}/simulate", self.simulate)]

    async def simulate(self, request: web.Request) -> web.Response:
        """`{"policies": [...], "price_gpu_s": 600}`: the figures of each policy, as `hotplate
        simulate --json` has them. Raises Conflict without requests, and Busy."""
        deployment = await named_deployment(self._store.deployments, request)
        fields = await body(request)
        names = fields.texts("policies") if fields.has("policies") else list(COMPARED)
        for name in names:
            if name not in POLICIES:
                raise Invalid(f"policies: there is no {name!r:.80}{suggestion(name, POLICIES)}")
        price = fields.amount("price_gpu_s")
        if price is not None and price > PRICE_MOST:
            raise Invalid(f"price_gpu_s: {price:g} is above {PRICE_MOST}")
        if self._runs:
            raise Busy("another simulation runs; ask again in some seconds")
        self._runs = True
        try:
            flags = [*names, "--cold-start", f"{await self._cold_start_s(deployment):.3f}"]
            flags += ["--concurrency", str(self._slots(deployment))]
            flags += [] if price is None else ["--price", f"{price:g}"]
            return web.json_response(await _simulated(await self._demand(deployment), flags))
        finally:
            self._runs = False

    async def _demand(self, deployment: Deployment) -> str:
        """All that is kept, as lines of a log."""
        kept = await self._store.run(self._store.history.demands, deployment.id)
        recent = [one for one in self._controller.demands(deployment.id) if one not in kept]
        about = {"kind": "demand", "deployment": deployment.name, "organization": ""}
        return "\n".join(json.dumps(about | one) for one in plain([*kept, *recent]))

    async def _cold_start_s(self, deployment: Deployment) -> float:
        """The middle one of the last starts."""
        starts = await self._store.run(self._store.history.cold_starts, deployment.id, 50)
        took = sorted(
            (one.ready_at - one.created_at).total_seconds() for one in starts if one.ready_at
        )
        return max(0.0, took[len(took) // 2]) if took else USUAL_COLD_START_S

    def _slots(self, deployment: Deployment) -> int:
        services = self._controller.live(deployment.id)["services"]
        return max([1, *(service.get("concurrency") or 1 for service in services)])


async def _simulated(log: str, flags: list[str]) -> dict[str, Any]:
    """Raises Conflict where there is nothing to simulate, or where it takes too long."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        await asyncio.to_thread(_write, file, log)
        command = [sys.executable, "-m", "hotplate.platform.cli", "simulate", "--json"]
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--log", file.name, "--policy", *flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_give_way,
        )
        try:
            async with asyncio.timeout(MOST_S):
                said, complaint = await process.communicate()
        except TimeoutError:
            raise Conflict(
                f"the simulation took longer than {MOST_S:g} s; run it yourself: "
                "hotplate why NAME --log > log && hotplate simulate --log log"
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
    if process.returncode:
        last = complaint.decode(errors="replace").strip().replace(f"{file.name}: ", "")
        raise Conflict(f"it cannot be simulated: {last[-300:] or process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


def _give_way() -> None:
    os.nice(10)


def _write(file: Any, log: str) -> None:
    file.write(log)
    file.flush()
