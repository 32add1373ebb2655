"""What can be asked of a platform from outside, on one machine or on a cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.support.end_to_end.forks import run
from tests.support.patience import PATIENCE_S, until


class AnyPlatform(ABC):
    """One that is asked as its admin. A test that asks for more than this is for one machine."""

    url: str
    token: str
    shared: Path
    """A folder that its replicas may write in: a path as they see it."""
    organization: str = "default"
    drained_s = PATIENCE_S
    """How long a replica of a deployment that is deleted may take, with requests that never end."""
    caller_flags: Sequence[str] = ()
    """Those by which `hotplate loadtest` may call protected deployments; on the platform's own
    machine it finds what it needs."""
    signed_in: Mapping[str, str] = MappingProxyType({})
    """Headers by which a browser shows the platform's pages; on its own machine it needs none."""

    @property
    def host(self) -> str:
        """Of its API."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Of its API."""
        return urlsplit(self.url).port or 80

    @property
    @abstractmethod
    def callers_token(self) -> str:
        """What protected deployments take."""

    @abstractmethod
    def unharmed(self) -> AbstractAsyncContextManager[None]:
        """Fails unless control plane, gateways and agents are the same after the block as before,
        answer, and have logged no traceback meanwhile."""

    @abstractmethod
    async def replicas_are_gone(self, name: str) -> bool:
        """Whether nothing runs any more of a deployment that was deleted."""

    @abstractmethod
    def command_flags(self) -> tuple[str, ...]:
        """With which `hotplate` commands ask this platform."""

    async def healthy(self) -> bool:
        """Whether the control plane answers, and a gateway is connected to it."""
        with suppress(aiohttp.ClientError):
            async with self._session() as http, http.get(f"{self.url}/healthz") as answer:
                return answer.status == 200
        return False

    async def ask(self, name: str, path: str = "") -> Any:
        """The platform's own page on a deployment: `""`, `/decisions`, `/events` …, as JSON."""
        return await self._get(f"/api/v1/hotplate/deployments/{name}{path}")

    async def page(self, path: str) -> Any:
        """Another page of the platform's own API."""
        return await self._get(f"/api/v1/hotplate/{path}")

    async def url_of(self, name: str) -> str:
        """Where a deployment answers, as the bentoml client is told."""
        url: str = (await self._get(f"/api/v2/deployments/{name}"))["urls"][0]
        return url

    async def replicas(self, name: str, state: str = "") -> list[dict[str, Any]]:
        """The live replicas of a deployment, of one state or of any."""
        found = (await self.ask(name))["live"]["replicas"]
        return [replica for replica in found if state in ("", replica["state"])]

    async def in_flight(self, name: str, service: str = "Kitchen") -> int:
        """Requests that a service's replicas have."""
        services = (await self.ask(name))["live"]["services"]
        (count,) = [one["in_flight"] for one in services if one["service"] == service]
        return int(count)

    async def stands(self, name: str, within_s: float) -> None:
        """Wait until a deployment serves, or sleeps: the client would look every 10 s."""

        async def status() -> bool:
            found = await self.ask(name)
            assert found["status"] not in ("failed", "image-build-failed"), found["reason"]
            return found["status"] in ("running", "scaled-to-zero")

        await until(status, within_s)

    async def asleep(self, name: str) -> None:
        """Wait until a deployment has no replica."""

        async def no_replicas() -> bool:
            return not await self.replicas(name)

        await until(no_replicas)

    async def delete(self, name: str) -> None:
        """Delete a deployment, if there is such, and wait until its replicas are gone."""
        url = f"{self.url}/api/v2/deployments/{name}"
        async with self._session() as http, http.delete(url) as answer:
            assert answer.status in (200, 404), await answer.text()
        await until(lambda: self.replicas_are_gone(name), self.drained_s)

    async def hotplate(self, question: str, *arguments: str, fails: bool = False) -> str:
        """What `hotplate status`, `logs` or `events` prints."""
        command = ["hotplate", question, *arguments, *self.command_flags()]
        status, output = await run(command, {**os.environ, "COLUMNS": "500"}, Path.cwd())
        assert (status != 0) == fails, output
        return output

    async def status(self, name: str) -> str:
        """What `hotplate status NAME` prints, its wrapped lines joined."""
        return " ".join((await self.hotplate("status", name)).split())

    async def _get(self, path: str) -> Any:
        async with self._session() as http, http.get(f"{self.url}{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(headers={"X-YATAI-API-TOKEN": self.token})
