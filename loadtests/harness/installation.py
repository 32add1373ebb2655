"""A whole platform of a benchmark's own, and the stock client that is logged in to it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from hotplate.platform.processes.ports import free_port, is_free
from loadtests.harness.child_process import (
    BIN,
    START_S,
    BenchmarkFailed,
    Child,
    clean_environ,
    module,
    output_of,
    running,
)

HOST = "127.0.0.1"
TOKEN = "bench"
DEPLOYMENT_PORTS = 20
PACKAGES = Path("~/.cache/hotplate-benchmarks")
"""What builds of environments download, for all installations."""
COMMAND_S = 150.0
"""How long `bentoml deploy` may take: it builds an environment."""
ASLEEP_S = 30.0
STOP_S = 45.0
POLL_S = 0.05


@dataclass(frozen=True)
class Installation:
    """A running `hotplate up`, and the `BENTOML_HOME` of its user."""

    url: str
    data: Path
    home: Path
    process: Child

    async def bentoml(self, *arguments: str | Path, folder: Path) -> str:
        """What the stock client prints. Raises BenchmarkFailed."""
        return await output_of(
            *(BIN / "bentoml", *arguments),
            log=self.home / "client.log",
            environ=self.environ,
            folder=folder,
            timeout_s=COMMAND_S,
        )

    @property
    def environ(self) -> dict[str, str]:
        return clean_environ() | {
            "BENTOML_HOME": str(self.home),
            "BENTOML_DO_NOT_TRACK": "True",
            "COLUMNS": "500",
        }

    async def deployment(self, name: str) -> dict[str, Any]:
        """What the platform says of it."""
        return await self._asked(f"deployments/{name}")

    async def series(self, name: str) -> dict[str, Any]:
        """What it did in the last hour."""
        return await self._asked(f"deployments/{name}/series")

    async def _asked(self, path: str) -> dict[str, Any]:
        headers = {"X-YATAI-API-TOKEN": TOKEN}
        url = f"{self.url}/api/v1/hotplate/{path}"
        async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def asleep(self, name: str) -> None:
        """Wait until the deployment has no replica. Raises BenchmarkFailed."""

        async def no_replica() -> bool:
            return not (await self.deployment(name))["live"]["replicas"]

        await until(no_replica, ASLEEP_S, f"{name} does not fall asleep")

    def pythons(self) -> list[Path]:
        """The interpreters of the environments that were built."""
        return sorted((self.data / "environments").glob("*/*/*/venv/bin/python"))


@asynccontextmanager
async def installation(
    folder: Path, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Installation]:
    """`hotplate up` in `folder` for the time of the block, with the client logged in.

    `environ` is the platform's; without, that of a user.
    """
    port = _free_range(DEPLOYMENT_PORTS + 1)
    data, home = folder / "data", folder / "home"
    for path in (data, home):
        path.mkdir()
    ports = f"{port + 1}-{port + DEPLOYMENT_PORTS}"
    settings = f'[platform]\ndeployment_ports = "{ports}"\narena_bytes = {64 << 20}\n'
    settings += f'package_cache = "{PACKAGES}"\n'
    (data / "hotplate.toml").write_text(settings)
    (data / "admin-token").write_text(TOKEN)
    command = module(
        "hotplate.platform.cli",
        *("up", "--data", data, "--host", HOST, "--port", port),
    )
    log = folder / "up.log"
    async with running(*command, log=log, environ=environ, grace_s=STOP_S) as process:
        here = Installation(f"http://{HOST}:{port}", data, home, process)

        async def ready() -> bool:
            if not process.alive:
                raise BenchmarkFailed(f"hotplate up has ended: {process.log_tail}")
            return "Hotplate is ready at" in process.log_text

        await until(ready, START_S, "hotplate up does not start")
        await here.bentoml(
            *("cloud", "login", "--endpoint", here.url, "--api-token", TOKEN), folder=home
        )
        yield here


class Laptop(Protocol):
    """Where somebody uses the stock client."""

    @property
    def home(self) -> Path:
        """The `BENTOML_HOME`."""

    @property
    def environ(self) -> dict[str, str]:
        """For what is started there."""


async def save_model(here: Laptop, example: Path) -> None:
    """Save the model of an example that has one."""
    await output_of(
        *(BIN / "python", example / "save_model.py"),
        log=here.home / "model.log",
        environ=here.environ,
        folder=here.home,
        timeout_s=60.0,
    )


async def deploy(
    here: Installation,
    project: Path,
    name: str,
    services: dict[str, Any],
    labels: Mapping[str, object] | None = None,
) -> tuple[str, str]:
    """Deploy a folder with `bentoml deploy`; the URL and the bento's tag."""
    config = here.home / f"{name}.json"
    written = [{"key": key, "value": str(value)} for key, value in (labels or {}).items()]
    config.write_text(json.dumps({"name": name, "services": services, "labels": written}))
    await here.bentoml("deploy", ".", "-f", config, folder=project)
    found = await here.deployment(name)
    return found["url"], found["bento"]


@asynccontextmanager
async def serving(here: Installation, tag: str, log: Path) -> AsyncIterator[tuple[str, Child]]:
    """`bentoml serve` of the same bento, in the environment that the platform built for it.

    Yields its URL, which may not answer yet, and its process.
    """
    port = free_port(HOST)
    (python,) = here.pythons()
    command = [str(python), "-m", "bentoml", "serve", tag, "--host", HOST, "--port", str(port)]
    async with running(*command, log=log, environ=here.environ, folder=here.home) as server:
        yield f"http://{HOST}:{port}", server


async def until(condition: Callable[[], Awaitable[bool]], limit_s: float, failure: str) -> None:
    """Wait for a condition. Raises BenchmarkFailed with `failure` after `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            while not await condition():  # noqa: ASYNC110 - others' state sets no event
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise BenchmarkFailed(f"{failure} in {limit_s:g} s") from None


def _free_range(count: int) -> int:
    """The first of `count` ports that nobody uses, below those that the kernel hands out."""
    for _ in range(100):
        first = random.SystemRandom().randrange(15000, 32000)
        if all(is_free(HOST, port) for port in range(first, first + count)):
            return first
    raise BenchmarkFailed(f"no {count} free ports in a row from 15000 to 32000 on {HOST}")
