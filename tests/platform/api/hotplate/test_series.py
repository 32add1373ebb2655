"""Series, rates and costs by our own routes: who sees whose, and what is asked wrongly."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from hotplate.deploy.phases import unix_now
from hotplate.platform.series.recorder import Subject
from hotplate.platform.series.track import Seen, Use
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

ROOT = "/api/v1/hotplate"


def total(column: list[float | None]) -> float:
    return sum(value or 0 for value in column)


def works(controller: FakeController, of: Deployment, requests: int = 7) -> Subject:
    """It has a replica with a GPU, and has answered so many requests."""
    subject = Subject(
        of.id,
        of.organization.id,
        of.organization.name,
        of.name.partition("#")[0],
        f"{of.organization.name}/{of.name}",
    )
    replica = Seen(f"{of.id}-a", "Echo", Use.READY, is_busy=True, gpus=1.0, price_h=3600.0)
    controller.series.look(subject, [replica], wanted=1, in_flight=2, queued=1)
    controller.series.counted({subject.route: RouteCounts(answered=requests, failed=1)})
    return subject


async def deployed(cloud: Cloud, name: str = "echo") -> Deployment:
    await cloud.push_bento()
    await cloud.deploy(name)
    return cloud.store.deployments.find(cloud.user.organization.id, name)


async def test_what_is_not_written_yet_is_answered_and_is_the_same_when_it_is(
    cloud: Cloud, controller: FakeController
) -> None:
    works(controller, await deployed(cloud))
    for _ in range(3):
        found = await cloud.call("GET", f"{ROOT}/deployments/echo/series")
        assert total(found["requests"]) == 7
        assert total(found["errors"]) == 1
        assert max(value or 0 for value in found["queued"]) == 1
        everything = await cloud.call("GET", f"{ROOT}/series")
        assert total(everything["requests"]) == 7
        costs = await cloud.call("GET", f"{ROOT}/costs?by=deployment")
        await controller.series.end_step()
        await controller.series.flush()
    (item,) = costs["items"]
    assert costs["sum"]["replica_s"]["lived"] == pytest.approx(sum(item["replica_s"].values()))
    assert (costs["sum"]["cost"], costs["sum"]["requests"]) == (item["cost"], item["requests"])
    assert (item["organization"], item["deployment"], item["day"]) == ("acme", "echo", None)
    assert item["requests"] == 7
    assert 0 < item["gpu_s"]["busy"] < 60
    assert item["cost"] == pytest.approx(item["replica_s"]["busy"], abs=0.01), "1 a second"


async def test_a_deployment_and_the_list_have_its_rates(
    cloud: Cloud, controller: FakeController
) -> None:
    works(controller, await deployed(cloud))
    one = await cloud.call("GET", f"{ROOT}/deployments/echo")
    (listed,) = await cloud.call("GET", f"{ROOT}/deployments")
    assert one["rates"] == listed["rates"] == {"requests_per_s": 0.7, "errors_per_s": 0.1}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=9&to=9", "from: 9 is not before to (9)"),
        ("from=yesterday", "from: 'yesterday' is no number of seconds"),
        ("to=-1", "to: '-1' is no number of seconds"),
        ("to=nan", "to: 'nan' is no number of seconds"),
        ("from=1e300", "from: '1e300' is no number of seconds"),
        ("step=0", "step: 0 is not more than 0 seconds"),
        ("step=ten", "step: 'ten' is no number"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    cloud: Cloud, query: str, sentence: str
) -> None:
    await deployed(cloud)
    for path in ("/series", "/deployments/echo/series"):
        with pytest.raises(Refused) as refused:
            await cloud.call("GET", f"{ROOT}{path}?{query}")
        assert refused.value.status == 400
        assert sentence in str(refused.value)


@pytest.mark.parametrize(("query", "status"), [("by=year", 400), ("format=xml", 400), ("", 200)])
async def test_costs_are_by_what_there_is(cloud: Cloud, query: str, status: int) -> None:
    url = cloud.server.make_url(f"{ROOT}/costs?{query}")
    headers = {"X-YATAI-API-TOKEN": cloud.token}
    async with ClientSession(headers=headers) as http, http.get(url) as answer:
        assert answer.status == status


async def test_the_versions_of_a_canary_are_told_apart(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.push_bento()
    version = {"bento": "echo:v1", "weight": 50, "services": {}}
    await cloud.deploy("echo", canary={"versions": {"next": version}})
    main = cloud.store.deployments.find(cloud.user.organization.id, "echo")
    works(controller, main, requests=5)
    works(controller, main.versions[0], requests=20)

    async def requests(version: str) -> float:
        found = await cloud.call("GET", f"{ROOT}/deployments/echo/series?version={version}")
        return total(found["requests"])

    assert [await requests(version) for version in ("", "main", "next")] == [25, 5, 20]
    with pytest.raises(Refused) as refused:
        await requests("other")
    assert refused.value.status == 404
    await controller.series.end_step()
    await controller.series.flush()
    (item,) = (await cloud.call("GET", f"{ROOT}/costs?by=deployment"))["items"]
    assert (item["deployment"], item["requests"]) == ("echo", 25)


async def test_an_organization_sees_its_own_and_an_operator_all(
    cloud: Cloud, controller: FakeController
) -> None:
    works(controller, await deployed(cloud), requests=7)
    store = cloud.store
    async with Cloud(cloud.server, store, "beta", name="bob") as other:
        works(controller, await deployed(other), requests=100)
        for written in (False, True):
            if written:
                await controller.series.end_step()
                await controller.series.flush()
            for who, mine in ((cloud, 7), (other, 100)):
                found = await who.call("GET", f"{ROOT}/series")
                assert total(found["requests"]) == mine
                for by in ("organization", "deployment", "day"):
                    costs = await who.call("GET", f"{ROOT}/costs?by={by}")
                    assert [item["requests"] for item in costs["items"]] == [mine]
    operator = store.tokens.add_token(cloud.user, "operator", operator=True)
    store.identities.set_operator(cloud.user.name, operator=True)

    async def asked(path: str, **headers: str) -> Any:
        headers = {"X-YATAI-API-TOKEN": operator, **headers}
        url = cloud.server.make_url(ROOT + path)
        async with ClientSession(headers=headers) as http, http.get(url) as answer:
            assert answer.status == 200
            return await (answer.text() if answer.content_type == "text/csv" else answer.json())

    assert total((await asked("/series"))["requests"]) == 107
    beta = {"X-Hotplate-Organization": "beta"}
    assert total((await asked("/series", **beta))["requests"]) == 100
    items = (await asked("/costs"))["items"]
    assert [(i["organization"], i["requests"]) for i in items] == [("acme", 7), ("beta", 100)]
    (day,) = (await asked("/costs?by=day"))["items"]
    assert (day["organization"], day["requests"]) == (None, 107)
    assert len(day["day"]) == len("2026-01-31")
    text = await asked("/costs?by=deployment&format=csv")
    head, first, second = text.splitlines()
    assert head.startswith("organization,deployment,day,requests,gpu_busy_s,gpu_idle_s,")
    assert first.startswith("acme,echo,,7,")
    assert second.startswith("beta,echo,,100,")


async def test_a_day_of_nothing_is_nothing(cloud: Cloud) -> None:
    await deployed(cloud)
    now = unix_now()
    found = await cloud.call("GET", f"{ROOT}/deployments/echo/series?from={now - 86_400}&step=1")
    assert found["step_s"] == 60
    assert len(found["at"]) in (1440, 1441)
    assert set(found["requests"]) == {None, 0}, "it was not there, and then it slept"


async def test_it_is_compressed_for_who_takes_that(cloud: Cloud) -> None:
    found = []
    for coding in ("gzip", "identity"):
        headers = {"Accept-Encoding": coding}
        async with cloud.http.get("/api/v1/hotplate/series?to=3600", headers=headers) as answer:
            assert answer.headers.get("Content-Encoding", "identity") == coding
            assert answer.headers["Vary"] == "Accept-Encoding"
            found.append(await answer.json())
    assert found[0] == found[1]
