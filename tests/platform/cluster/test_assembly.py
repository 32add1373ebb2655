"""A control plane on a cluster in memory: `hotplate control-plane --engine kubernetes`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotplate.platform.store.database import Database
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.sealed_keys import SealedKeys
from tests.support.deploy.cluster import SERVING, ClusterInMemory
from tests.support.deploy.cluster_server import ClusterServer
from tests.support.patience import until
from tests.support.ports import free_port

NEEDED = "needs the package 'kubernetes', which make test-kubernetes installs"
pytestmark = pytest.mark.skipif(find_spec("kubernetes") is None, reason=NEEDED)

ADMIN, CLUSTER = "of-the-admin", "of-the-cluster"
SETTINGS = """
[cluster]
url = "https://*.models.example.com"
release = "inhouse"
runtimes = [{python = "3.11", image = "hotplate-runtime:1"}]
capacity_cpus = 12
"""


@pytest.fixture
async def server() -> AsyncIterator[ClusterServer]:
    async with ClusterServer(ClusterInMemory()).running() as made:
        given = {"cpu": "8", "memory": "32Gi"}
        made.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "node1", "labels": {"zone": "a"}},
                "status": {"allocatable": given},
            }
        )
        labels = {
            "app.kubernetes.io/part-of": "hotplate",
            "app.kubernetes.io/name": "hotplate-gateway",
        }
        made.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "gateway-a", "namespace": "inhouse", "labels": labels},
                "spec": {"nodeName": "node1"},
                "status": SERVING,
            }
        )
        yield made


class Plane:
    """One that runs."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.url = process, f"http://127.0.0.1:{port}"

    async def ask(self, path: str) -> tuple[int, Any]:
        headers = {"X-YATAI-API-TOKEN": ADMIN}
        try:
            async with (
                aiohttp.ClientSession(self.url, headers=headers) as http,
                http.get(path) as answer,
            ):
                return answer.status, await answer.json()
        except aiohttp.ClientConnectionError:
            return 0, None


@asynccontextmanager
async def running(folder: Path, server: ClusterServer) -> AsyncIterator[Plane]:
    (folder / "tokens").mkdir(exist_ok=True)
    (folder / "tokens" / "admin-token").write_text(ADMIN)
    (folder / "tokens" / "cluster-token").write_text(CLUSTER)
    (folder / "settings.toml").write_text(SETTINGS)
    (folder / "kubeconfig").write_text(
        json.dumps(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": {"server": server.url}}],
                "users": [{"name": "it", "user": {}}],
            }
        )
    )
    port = free_port()
    words = ["control-plane", "--engine", "kubernetes", "--port", str(port)]
    for flag, file in (("data", "data"), ("settings", "settings.toml"), ("tokens", "tokens")):
        words += [f"--{flag}", str(folder / file)]
    with (folder / "log").open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hotplate.platform.program", *words),
            env={**os.environ, "KUBECONFIG": str(folder / "kubeconfig")},
            stderr=log_file,
        )
    plane = Plane(process, port)
    try:

        async def serves() -> bool:
            assert process.returncode is None, (folder / "log").read_text()
            return (await plane.ask("/readyz"))[0] == 200

        await until(serves)
        yield plane
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        status = await process.wait()
    log = (folder / "log").read_text()
    assert (status, "Traceback" in log) == (0, False), log


async def test_it_serves_what_its_cluster_has(server: ClusterServer, tmp_path: Path) -> None:
    async with running(tmp_path, server) as plane:
        status, said = await plane.ask("/healthz")
        assert (status, said["status"]) == (200, "starting"), "it lives without a gateway"
        _, page = await plane.ask("/api/v1/hotplate/platform")
        assert [(role["name"], role["node"]) for role in page["roles"]] == [("gateway-a", "node1")]
        (node,) = page["nodes"]
        assert (node["name"], node["in_all"]["cpus"], node["taken"]["cpus"]) == ("node1", 8, 0)
        _, types = await plane.ask("/api/v1/instance_types")
        assert [each["display_name"] for each in types] == ["cpu.1", "cpu.2", "cpu.4"]
        assert (await plane.ask("/api/v1/hotplate/environments"))[0] == 200
    assert server.writes == []
    kept = {path.name for path in (tmp_path / "data").iterdir()}
    assert not kept & {"admin-token", "cluster-token", "endpoint-token", "secret-keys"}
    database = Database(f"sqlite:///{tmp_path}/data/hotplate.db")
    SealedKeys(LearntValues(database), CLUSTER).keyring()
    database.close()
