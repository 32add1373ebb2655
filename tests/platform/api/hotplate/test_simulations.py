"""What another policy would have done: with the requests that are kept, in ten seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hotplate.platform.api.hotplate import simulations
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import DemandRecord
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

PATH = "/api/v1/hotplate/deployments/echo/simulate"


@pytest.fixture(autouse=True)
async def deployed(cloud: Cloud, controller: FakeController) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    now = datetime.now(UTC)
    controller.unwritten = [
        DemandRecord(now - timedelta(minutes=at), 1, "Echo", 6, 2, 0, 0.5, 1, 0)
        for at in range(30, 0, -3)
    ]


async def test_each_policy_has_its_cost_and_its_waits(cloud: Cloud) -> None:
    asked = {"policies": ["ours", "ray-serve"], "price_gpu_s": 100}
    found = (await cloud.call("POST", PATH, asked))["policies"]
    assert list(found) == ["ours", "ray-serve"]
    for figures in found.values():
        assert figures["requests"] == 60
        assert figures["gpu_hours"]["total"] > 0


async def test_another_price_costs_another_amount(cloud: Cloud) -> None:
    cheap, dear = [
        (await cloud.call("POST", PATH, {"policies": ["ours"], "price_gpu_s": price}))["policies"]
        for price in (1, 100_000)
    ]
    assert cheap["ours"]["gpu_hours"]["idle"] < dear["ours"]["gpu_hours"]["idle"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"policies": ["rays-serve"]}, "policies: there is no 'rays-serve'"),
        ({"price_gpu_s": 1e9}, "price_gpu_s: 1e+09 is above 1000000"),
    ],
)
async def test_what_cannot_be_is_refused(cloud: Cloud, body: object, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        await cloud.call("POST", PATH, body)
    assert refused.value.status == 400
    assert sentence in refused.value.message


async def test_without_requests_there_is_nothing_to_simulate(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.unwritten = []
    with pytest.raises(Refused, match="the log has no requests"):
        await cloud.call("POST", PATH, {})


async def test_it_takes_no_longer_than_it_may(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulations, "MOST_S", 0.01)
    with pytest.raises(Refused) as refused:
        await cloud.call("POST", PATH, {})
    assert refused.value.status == 409
    assert "longer than 0.01 s" in refused.value.message


async def test_a_stranger_cannot_ask(cloud: Cloud, store: Store) -> None:
    async with Cloud(cloud.server, store, "other") as other:
        with pytest.raises(Refused) as refused:
            await other.call("POST", PATH, {})
    assert refused.value.status == 404
