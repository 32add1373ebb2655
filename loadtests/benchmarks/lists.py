"""Lists of 1,000 deployments with 10 revisions each, and the memory of the control plane meanwhile.

Each row is asked of a running `hotplate control-plane` over HTTP, and its CPU time is that
process's. The client's list is its two calls together: one without a count, which tells how many
there are, and one for all. Each deployment has a bento of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from sqlalchemy import insert

from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.database import Database
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION, Kind, RolloutOutcome
from hotplate.platform.store.tables import ArtifactRow, DeploymentRow, RevisionRow
from loadtests.harness.child_process import START_S, BenchmarkFailed, module, running
from loadtests.harness.installation import TOKEN
from loadtests.harness.report import column
from tests.support.memory import memory_bytes
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.processor import cpu_s

DEPLOYMENTS, REVISIONS, PAGE = 1000, 10, 50
ROUTES = 50
"""Of a bento's manifest, each with 200 characters of description."""
CONFIG = {"services": {"Echo": {"scaling": {"min_replicas": 0, "max_replicas": 3}, "envs": []}}}
FIRST_PORT = 20_000
WARM = 3
"""Calls before those that are measured: the first ones compile statements."""


@dataclass(frozen=True)
class Line:
    asked: str
    median_ms: float | None = column("median ms", 1)
    p95_ms: float | None = column("p95 ms", 1)
    cpu_ms: float | None = column("CPU ms", 1)
    memory_mib: float | None = column("control plane MiB", 1)


async def measure(folder: Path, quick: bool) -> Sequence[Line]:
    data = DataDir.at(folder / "data")
    data.secret("admin-token", TOKEN)
    await asyncio.to_thread(_fill, data)
    port = free_port()
    command = (
        "control-plane",
        "--data",
        data.root,
        "--port",
        port,
        "--agent",
        "http://127.0.0.1:1",
    )
    log = folder / "log"
    async with running(*module("hotplate.platform.cli", *command), log=log) as process:
        await until(lambda: f":{port}; " in process.log_text, START_S)
        await process.until_idle()  # it has looked at all of them
        url, headers = f"http://127.0.0.1:{port}", {"X-YATAI-API-TOKEN": TOKEN}
        async with aiohttp.ClientSession(url, headers=headers) as http:
            lists = _Lists(http, process.pid, 10 if quick else 50)
            return [
                await lists.line("a page of 50", f"count={PAGE}"),
                await lists.line("the last page", f"count={PAGE}&start={DEPLOYMENTS - PAGE}"),
                await lists.line("a page of 50 by label", f"count={PAGE}&q=label:team=3"),
                await lists.line("a page of 50 by word", f"count={PAGE}&q=echo"),
                await lists.line("the client's list", "", f"count={DEPLOYMENTS}"),
            ]


class _Lists:
    """Asks one thing after another of the control plane `pid`, each so many `times`."""

    def __init__(self, http: aiohttp.ClientSession, pid: int, times: int) -> None:
        self._http = http
        self._pid = pid
        self._times = times

    async def line(self, asked: str, *queries: str) -> Line:
        took_ms = []
        cpu_ms = []
        for _ in range(WARM + self._times):
            began, used_s = time.perf_counter(), cpu_s(self._pid)
            for query in queries:
                await self._ask(query)
            took_ms.append(1000 * (time.perf_counter() - began))
            cpu_ms.append(1000 * (cpu_s(self._pid) - used_s))
        took_ms = sorted(took_ms[WARM:])
        return Line(
            asked,
            took_ms[len(took_ms) // 2],
            took_ms[int(len(took_ms) * 0.95)],
            sum(cpu_ms[WARM:]) / len(took_ms),
            memory_bytes(self._pid) / 2**20,
        )

    async def _ask(self, query: str) -> None:
        async with self._http.get(f"/api/v2/deployments?{query}") as answer:
            if answer.status != 200 or not (await answer.read()).startswith(b'{"start"'):
                raise BenchmarkFailed(f"a list of {query!r} is answered {answer.status}")


def _fill(data: DataDir) -> None:
    """The deployments, in the database of a platform that has not started yet."""
    database = Database(data.database_url)
    store = Store(database, lambda taken: max(taken, default=7099) + 1)
    user = store.identities.ensure_user(ORGANIZATION, ADMIN, f"{ADMIN}@localhost")
    tenant = user.organization.id
    store.artifacts.ensure_repository(tenant, Kind.BENTO, "echo")
    routes = [{"route": f"/{number}", "doc": "x" * 200} for number in range(ROUTES)]
    services = [{"name": "Echo", "config": {}}]
    manifest = {"entry_service": "Echo", "services": services, "schema": {"routes": routes}}
    draft = ArtifactDraft("v", manifest=manifest)
    bento = store.artifacts.create(tenant, Kind.BENTO, "echo", draft)
    with database.session() as session:
        repository_id = session.get_one(ArtifactRow, bento.id).repository_id
        for number in range(DEPLOYMENTS):
            own = ArtifactRow(
                repository_id=repository_id,
                version=f"v{number}",
                description="",
                manifest=manifest,
                labels=[],
                build_at="",
                upload_status="success",
            )
            row = DeploymentRow(
                organization_id=tenant,
                creator_id=user.id,
                name=f"deployment-{number:04}",
                port=FIRST_PORT + number,
                wanted="running",
                status="scaled-to-zero",
                reason="no requests",
                labels=[{"key": "team", "value": str(number % 10)}],
            )
            session.add_all([own, row])
            session.flush()
            revisions = [
                {
                    "deployment_id": row.id,
                    "number": revision,
                    "config": CONFIG,
                    "bento_id": own.id,
                    "ports": {},
                    "outcome": RolloutOutcome.READY,
                    "serving": revision == REVISIONS,
                }
                for revision in range(1, REVISIONS + 1)
            ]
            session.execute(insert(RevisionRow), revisions)
    store.close()
