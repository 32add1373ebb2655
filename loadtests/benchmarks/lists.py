"""Lists of 1,000 deployments with 10 revisions each: pages, filters, and what the client asks.

Each row is the part of the database and of the JSON, in one process, on SQLite. The client's list
is its two calls together: one without a count, which tells how many there are, and one for all.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web.requests import COUNT_UNSAID
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.database import Database
from hotplate.platform.store.list_filter import ALL, ListFilter
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind, RolloutOutcome
from hotplate.platform.store.tables import DeploymentRow, RevisionRow
from loadtests.harness.report import column

DEPLOYMENTS, REVISIONS, PAGE = 1000, 10, 50
ROUTES = 50
"""Of the bento's manifest, each with 200 characters of description."""
CONFIG = {"services": {"Echo": {"scaling": {"min_replicas": 0, "max_replicas": 3}, "envs": []}}}


@dataclass(frozen=True)
class Line:
    asked: str
    median_ms: float | None = column("median ms", 1)
    p95_ms: float | None = column("p95 ms", 1)
    peak_mib: float | None = column("process MiB")


async def measure(folder: Path, quick: bool) -> Sequence[Line]:
    return await asyncio.to_thread(_measured, folder, 5 if quick else 50)


def _measured(folder: Path, times: int) -> list[Line]:
    store, tenant = _filled(folder)

    def ask(wanted: ListFilter = ALL, start: int = 0, count: int | None = PAGE) -> None:
        found, _ = store.deployments.page(tenant, wanted, start, count)
        items = [views.deployment(one, "http://127.0.0.1", "default") for one in found]
        json.dumps([views.without_manifest(item) for item in items])

    def client() -> None:
        ask(count=COUNT_UNSAID)
        ask(count=DEPLOYMENTS)

    try:
        return [
            _line("a page of 50", ask, times),
            _line("the last page", lambda: ask(start=DEPLOYMENTS - PAGE), times),
            _line("a page of 50 by label", lambda: ask(ListFilter({"team": "3"})), times),
            _line("a page of 50 by word", lambda: ask(ListFilter(words=["echo"])), times),
            _line("the client's list", client, times),
        ]
    finally:
        store.close()


def _line(asked: str, ask: Callable[[], None], times: int) -> Line:
    took_ms = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        took_ms.append(1000 * (time.perf_counter() - began))
    took_ms.sort()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Line(asked, took_ms[times // 2], took_ms[int(times * 0.95)], peak_mib)


def _filled(folder: Path) -> tuple[Store, int]:
    """A store with the deployments, and the organization that has them."""
    database = Database(f"sqlite:///{folder / 'store.db'}")
    store = Store(database, lambda taken: max(taken, default=7099) + 1)
    user = store.identities.ensure_user("default", "admin", "admin@example.com")
    tenant = user.organization.id
    store.artifacts.ensure_repository(tenant, Kind.BENTO, "echo")
    routes = [{"route": f"/{number}", "doc": "x" * 200} for number in range(ROUTES)]
    draft = ArtifactDraft("v1", manifest={"schema": {"routes": routes}})
    bento = store.artifacts.create(tenant, Kind.BENTO, "echo", draft)
    with database.session() as session:
        for number in range(DEPLOYMENTS):
            row = DeploymentRow(
                organization_id=tenant,
                creator_id=user.id,
                name=f"deployment-{number:04}",
                port=10_000 + number,
                wanted="running",
                status="running",
                labels=[{"key": "team", "value": str(number % 10)}],
            )
            session.add(row)
            session.flush()
            revisions = [
                {
                    "deployment_id": row.id,
                    "number": revision,
                    "config": CONFIG,
                    "bento_id": bento.id,
                    "outcome": RolloutOutcome.READY,
                    "serving": revision == REVISIONS,
                }
                for revision in range(1, REVISIONS + 1)
            ]
            session.execute(insert(RevisionRow), revisions)
    return store, tenant
