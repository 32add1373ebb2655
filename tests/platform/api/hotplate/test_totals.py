"""What is added up of one deployment, and of all of an organization's."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.api.hotplate.totals import of_all, of_one
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController

PATH = "/api/v1/hotplate/totals"


def service(revision: int, desired: int | None, granted: int | None, busy: int = 0) -> Any:
    return {
        "revision": revision,
        "desired": desired,
        "granted": granted,
        "in_flight": busy,
        "queued": busy * 2,
    }


def replica(state: str, ready_at: str | None = None, cold_start_s: float | None = None) -> Any:
    return {"state": state, "ready_at": ready_at, "cold_start_s": cold_start_s}


def test_what_is_wanted_is_of_the_revision_that_serves_and_requests_are_of_all() -> None:
    live = {
        "services": [
            service(2, desired=3, granted=None, busy=1),
            service(2, desired=4, granted=2, busy=2),
            service(2, desired=None, granted=None),
            service(3, desired=9, granted=9, busy=5),
        ],
        "replicas": [
            replica("ready", "2026-01-01T00:00:09+00:00", 1.5),
            replica("draining", "2026-01-01T00:00:10+00:00", 2.5),
            replica("starting"),
        ],
    }
    assert of_one(live, 2) == {
        "ready": 1,
        "wanted": 5,
        "in_flight": 8,
        "queued": 16,
        "last_cold_start_s": 2.5,
    }


def test_where_there_is_nothing_there_was_no_start() -> None:
    found = of_one({"services": [], "replicas": []}, 1)
    assert found.pop("last_cold_start_s") is None
    assert set(found.values()) == {0}


@pytest.mark.parametrize("count", [0, 2])
def test_all_together_are_the_sums_of_each(count: int) -> None:
    one = {
        "status": "running",
        "totals": {"ready": 1, "wanted": 2, "in_flight": 3, "queued": 4},
        "rates": {"requests_per_s": 0.1, "errors_per_s": 0.2},
    }
    assert of_all([one] * count) == {
        "deployments": count,
        "by_status": {"running": count} if count else {},
        "ready": count,
        "wanted": 2 * count,
        "in_flight": 3 * count,
        "queued": 4 * count,
        "rates": {"requests_per_s": 0.1 * count, "errors_per_s": 0.2 * count},
    }


async def test_an_organization_is_told_of_its_own_alone(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.push_bento()
    await cloud.deploy("one")
    await cloud.deploy("two")
    await controller.settled()
    found = await cloud.call("GET", PATH)
    assert (found["deployments"], found["by_status"]) == (2, {"running": 2})
    async with Cloud(cloud.server, cloud.store, "beta", name="bob") as other:
        assert (await other.call("GET", PATH))["deployments"] == 0
