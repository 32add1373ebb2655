"""A real Prometheus reads a platform, and is asked all that Grafana's dashboard would ask it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port

PROMETHEUS = shutil.which("prometheus")
FOLDER = Path(__file__).parents[2] / "deploy/manifests/monitoring"
WITH_VALUES = 0.95
SHOWN = (
    'hotplate_gateway_version_answers_total{route="default/graphed",version="main@1",status="2xx"}',
    'hotplate_controller_rollouts_total{deployment="default/graphed",outcome="ready"} == 1',
    'hotplate_api_requests_total{method="POST",route="/api/v2/deployments",status="200"}',
    "hotplate_api_refused_logins_total",
    "hotplate_store_transaction_seconds_count > 0",
    "hotplate_control_plane_leader == 1",
    'hotplate_control_plane_check_failing{check="gateway"} == 0',
)

HELPED = (
    "hotplate_controller_gpu_seconds_total",
    "hotplate_controller_rollouts_total",
    "hotplate_gateway_version_answers_total",
    "hotplate_api_requests_total",
    "hotplate_api_request_seconds",
    "hotplate_api_refused_logins_total",
    "hotplate_store_transaction_seconds",
    "hotplate_control_plane_leader",
)

pytestmark = [
    pytest.mark.client,
    pytest.mark.one_machine("it reads the ports of hotplate up"),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on this machine"),
]


class Reader:
    """A Prometheus with our files, which reads a platform each second."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.folder = folder / "prometheus"
        shutil.copytree(FOLDER, self.folder)
        shutil.copy(platform.data / "metrics-token", self.folder / "metrics-token")
        ports = {**platform.noted("ports"), "control-plane": platform.port}
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"role": role}}
            for role, port in ports.items()
        ]
        (self.folder / "targets.yml").write_text(yaml.safe_dump(targets))
        config = self.folder / "prometheus.yml"
        config.write_text(config.read_text().replace("_interval: 15s", "_interval: 1s"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [
                    str(PROMETHEUS),
                    f"--config.file={self.folder}/prometheus.yml",
                    f"--storage.tsdb.path={self.folder}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    async def ask(self, expression: str) -> list[Any]:
        """The values. Raises AssertionError for an error."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.url}/api/v1/query", params={"query": expression}) as answer,
        ):
            found = await answer.json()
            assert found["status"] == "success", (expression, found)
            return [one["value"][1] for one in found["data"]["result"]]

    async def reads_all(self) -> bool:
        with suppress(aiohttp.ClientError):
            return await self.ask('up{job="hotplate"}') == ["1"] * 3
        return False


@pytest.fixture
async def reader(platform: Platform, tmp_path: Path) -> AsyncIterator[Reader]:
    made = Reader(platform, tmp_path)
    process = made.start()
    try:
        await until(made.reads_all)
        yield made
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def expressions() -> list[str]:
    board = json.loads((FOLDER / "grafana.json").read_text())
    asked = [one["expr"] for panel in board["panels"] for one in panel.get("targets", ())]
    return [re.sub(r"\$deployment\b", ".+", expression) for expression in asked]


async def test_each_expression_of_the_dashboard_has_values_after_a_little_load(
    platform: Platform, laptop: Laptop, kitchen: str, reader: Reader
) -> None:
    async with (
        deployed(platform, laptop, kitchen, "graphed") as url,
        aiohttp.ClientSession() as http,
    ):

        async def load() -> None:
            for _ in range(3):
                async with http.post(f"{url}/echo", json={"text": "a"}) as answer:
                    assert answer.status == 200
                async with http.post(
                    f"{url}/echo", data=b"", headers={"Content-Type": "application/x-pickle"}
                ) as refused:
                    assert refused.status >= 400

        # Each series has to be there for two readings before a rate of it has a value.
        for _ in range(3):
            await load()
            await asyncio.sleep(1.1)
        without: list[str] = []

        async def have_values() -> bool:
            without[:] = [each for each in expressions() if not await reader.ask(each)]
            return len(without) <= (1 - WITH_VALUES) * len(expressions())

        with suppress(TimeoutError):
            await until(have_values)
        assert len(without) <= (1 - WITH_VALUES) * len(expressions()), without
        for shown in SHOWN:
            assert await reader.ask(shown), shown
        lines = "\n".join(await _metrics(platform)).splitlines()
        helped = {line.split()[2] for line in lines if re.match(r"# HELP \S+ \S", line)}
        assert helped >= set(HELPED)
        assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == helped
    await until(lambda: _is_gone(platform, "default/graphed"))


async def _is_gone(platform: Platform, name: str) -> bool:
    """Whether no role has a line of it any more."""
    return not any(f'"{name}"' in text for text in await _metrics(platform))


async def _metrics(platform: Platform) -> list[str]:
    """What each role shows."""
    ports = {**platform.noted("ports"), "control-plane": platform.port}
    token = (platform.data / "metrics-token").read_text().strip()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        texts = []
        for port in ports.values():
            async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.status == 200
                texts.append(await answer.text())
    return texts
