"""Whoever uses the release on the test cluster: by the stock client, as a caller, by kubectl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.harness.child_process import BIN, BenchmarkFailed, clean_environ, output_of
from loadtests.harness.installation import until
from tests.cluster.errors import TestClusterError
from tests.cluster.helm import RELEASE, Helm
from tests.cluster.installation import Installation as Cluster
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import Layout, node_address
from tests.cluster.release import API_PORT, GATEWAY_PORT, Release
from tests.cluster.stand_ins import StandIns

GATEWAY = f"http://{node_address(1)}:{GATEWAY_PORT}"
"""Where callers arrive; a gateway of any node answers there."""
NAMESPACE = f"{RELEASE}-t-default"
DEPLOY_S = 900.0
"""How long `bentoml deploy` may take: a Job builds an environment."""
ASLEEP_S = 60.0
GONE_S = 90.0
_ANSWER_S = 60.0
READY_LIMIT = aiohttp.ClientTimeout(2)
"""A pod that has just gone refuses no connection: one would be waited for for half a minute."""
ONCE = {"Connection": "close"}
"""For who asks a control plane that may be gone by the next question."""


@dataclass(frozen=True)
class ReleaseUser:
    """The admin, with a `BENTOML_HOME` that is logged in."""

    release: Release
    token: str
    home: Path
    callers: aiohttp.ClientSession
    """Keeps its connections."""

    @property
    def url(self) -> str:
        """Of the API."""
        return f"http://{node_address(1)}:{API_PORT}"

    @property
    def environ(self) -> dict[str, str]:
        return clean_environ() | {
            "BENTOML_HOME": str(self.home),
            "BENTOML_DO_NOT_TRACK": "True",
            "COLUMNS": "500",
        }

    async def bentoml(self, *arguments: str | Path, folder: Path) -> str:
        """What the stock client prints. Raises BenchmarkFailed."""
        return await output_of(
            *(BIN / "bentoml", *arguments),
            log=self.home / "client.log",
            environ=self.environ,
            folder=folder,
            timeout_s=DEPLOY_S,
        )

    async def kubectl(self, *arguments: str) -> str:
        """What kubectl prints. Raises BenchmarkFailed."""
        try:
            return await asyncio.to_thread(self.release.kubectl, *arguments)
        except TestClusterError as error:
            raise BenchmarkFailed(str(error)) from error

    async def listed(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """The objects of a kind, as the API server has them."""
        said = await self.kubectl("get", kind, *arguments, "--output=json")
        return list(json.loads(said)["items"])

    async def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """What the API answers, below its root. Raises BenchmarkFailed."""
        head, url = {"X-YATAI-API-TOKEN": self.token}, f"{self.url}{path}"
        try:
            # A connection of its own: the control plane that had the last one may be gone.
            async with (
                aiohttp.ClientSession(headers=head) as http,
                http.request(method, url, json=body) as answer,
            ):
                if answer.status >= 400:
                    raise BenchmarkFailed(f"{method} {path}: {answer.status} {await answer.text()}")
                return await answer.json()
        except aiohttp.ClientError as error:
            raise BenchmarkFailed(f"the API does not answer: {error}") from error

    async def serves(self) -> bool:
        """Whether the control plane does."""
        try:
            async with self.callers.get(
                f"{self.url}/readyz", headers=ONCE, timeout=READY_LIMIT
            ) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def deployment(self, name: str, page: str = "") -> Any:
        """What the platform says of it, or one of its pages, as `/cold_starts`."""
        return await self.ask(f"/api/v1/hotplate/deployments/{name}{page}")

    async def deploy(
        self,
        project: Path,
        name: str,
        services: Mapping[str, object],
        *,
        bento: str = ".",
        labels: Mapping[str, object] | None = None,
    ) -> str:
        """Has the stock client deploy a folder, or a bento by its tag; the bento's tag."""
        config = self.home / f"{name}.json"
        written = [{"key": key, "value": str(value)} for key, value in (labels or {}).items()]
        said = {"name": name, "bento": bento, "services": services, "labels": written}
        config.write_text(json.dumps(said))
        await self.bentoml("deploy", "-f", config, folder=project)
        found = await self.deployment(name)
        return str(found["bento"])

    async def call(
        self, name: str, path: str, answer_s: float = _ANSWER_S, **fields: object
    ) -> Any:
        """One POST to the deployment; its answer, as JSON or text. BenchmarkFailed if it is no
        200, aiohttp's errors and TimeoutError if there is none."""
        limit = aiohttp.ClientTimeout(answer_s)
        asked = self.callers.post(
            f"{GATEWAY}/{path}", json=fields, headers=host_of(name), timeout=limit
        )
        async with asked as answer:
            if answer.status != 200:
                raise BenchmarkFailed(f"{name}: {answer.status} {await answer.text()}")
            is_json = answer.content_type == "application/json"
            return await (answer.json() if is_json else answer.text())

    async def asleep(self, name: str) -> None:
        """Waits until the deployment has no replica, and no pod. Raises BenchmarkFailed."""

        async def no_replica() -> bool:
            return not (await self.deployment(name))["live"]["replicas"]

        await until(no_replica, ASLEEP_S, f"{name} does not fall asleep")

    @asynccontextmanager
    async def closed(self, node: str) -> AsyncIterator[None]:
        """No new pod comes to the node while the block runs."""
        await self.kubectl("cordon", node)
        try:
            yield
        finally:
            await self.kubectl("uncordon", node)

    async def delete(self, *names: str) -> None:
        """Deletes deployments, if they are there, and waits until none of their objects is left."""
        for name in names:
            try:
                await self.ask(f"/api/v2/deployments/{name}", "DELETE")
            except BenchmarkFailed as error:
                if " 404 " not in str(error):
                    raise
        whose = f"--selector=hotplate.dev/deployment in ({','.join(names)})"
        where = f"--namespace={NAMESPACE}"

        async def gone() -> bool:
            return not await self.listed("deployments,configmaps,pods", whose, where)

        await until(gone, GONE_S, f"{', '.join(names)} is not removed")


def host_of(name: str) -> dict[str, str]:
    """The header by which a gateway knows the deployment."""
    return {"Host": f"{name}.models.test:{GATEWAY_PORT}"}


@asynccontextmanager
async def release_user(folder: Path) -> AsyncIterator[ReleaseUser]:
    """The release that `make cluster-install` has made. Raises BenchmarkFailed without one."""
    layout = Layout()
    cluster = Cluster(layout)
    kubectl = Kubectl(layout)
    release = Release(layout, Helm(layout, layout.kubeconfig), kubectl, StandIns(cluster.daemons))
    if not layout.kubeconfig.exists():
        raise BenchmarkFailed("there is no cluster; run `make cluster-up cluster-install` before")
    try:
        token = await asyncio.to_thread(release.token, "admin")
    except TestClusterError as error:
        raise BenchmarkFailed(f"run `make cluster-install` before: {error}") from error
    home = folder / "home"
    home.mkdir()
    async with aiohttp.ClientSession() as callers:
        user = ReleaseUser(release, token, home, callers)
        login = ("cloud", "login", "--endpoint", user.url, "--api-token", token)
        await user.bentoml(*login, folder=home)
        yield user
