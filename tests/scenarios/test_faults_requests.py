"""Requests that cannot be carried out: one sentence each, and nothing is lost or left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenarios.calling import call
from tests.scenarios.laptop import Laptop, deployed
from tests.scenarios.platform_process import Platform
from tests.scenarios.rough_client import RoughClient

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]


@pytest.fixture
async def rough(platform: Platform) -> AsyncIterator[RoughClient]:
    async with RoughClient(platform) as client:
        yield client


async def test_a_wrong_token_is_told_at_login_and_later(platform: Platform, tmp_path: Path) -> None:
    other = Laptop(tmp_path)
    where = ("cloud", "login", "--endpoint", platform.url, "--api-token")
    said = await other.bentoml(*where, "wrong", fails=True)
    assert "Bad credentials" in said

    await other.login(platform)
    context = tmp_path / ".yatai.yaml"
    context.write_text(context.read_text().replace(platform.token, "revoked"))
    said = await other.bentoml("deployment", "list", fails=True)
    assert "bentoml cloud login" in said
    assert "Traceback" not in said


UNKNOWN = {
    "deployment get nope": "deployment 'nope': there is none",
    "deploy nope:v1 -n x": "nope:v1 is not found",
    "models pull nope:1": "model 'nope:1': there is none",
    "deploy kitchen:v1 -n x --instance-type cpux.1": "no 'cpux.1'; did you mean 'cpu.1'?",
    "deploy kitchen:v1 -n x --scaling-min 3 --scaling-max 1": "min scaling values must be less",
}


@pytest.mark.parametrize(("command", "sentence"), UNKNOWN.items())
async def test_the_client_shows_what_is_wrong_with_a_command(
    laptop: Laptop, kitchen: str, command: str, sentence: str
) -> None:
    said = await laptop.bentoml(*command.split(), fails=True)
    assert sentence in said
    assert "Traceback" not in said


KITCHEN = {"name": "x", "bento": "kitchen:v1"}
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no such bento": ({"bento": "nope:v1"}, "bento 'nope:v1' is not here; push it first"),
    "no such version": ({"bento": "kitchen:v9"}, "bento 'kitchen:v9' is not here"),
    "no bento at all": ({"bento": None}, "bento: null is not a string"),
    "a bad name": ({"name": "Not_A_Name"}, "'Not_A_Name' is no deployment name"),
    "no such service": ({"services": {"Kitchn": {}}}, "did you mean 'Kitchen'?"),
    "no such instance type": (
        {"services": {"Kitchen": {"instance_type": "gpu.9"}}},
        "services.Kitchen.instance_type: there is no 'gpu.9'",
    ),
    "more at least than at most": (
        {"services": {"Kitchen": {"scaling": {"min_replicas": 3, "max_replicas": 1}}}},
        "services.Kitchen.scaling.max_replicas: 1 is below min_replicas 3",
    ),
    "no amount": (
        {"services": {"Kitchen": {"config_overrides": {"resources": {"cpu": "lots"}}}}},
        "services.Kitchen.config.resources: CPU amount 'lots' cannot be read",
    ),
    "a list for an object": ({"services": ["Kitchen"]}, "services: "),
}


@pytest.mark.parametrize(("fields", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_a_deployment_that_cannot_be_made_is_refused_and_leaves_nothing(
    rough: RoughClient, kitchen: str, fields: dict[str, object], sentence: str
) -> None:
    refused = await rough.refusal("POST", "/api/v2/deployments", {**KITCHEN, **fields})
    assert refused.status == 400
    assert sentence in refused.message
    assert (await rough.refusal("GET", "/api/v2/deployments/x")).status == 404


async def test_an_update_that_cannot_be_made_leaves_what_serves(
    platform: Platform, laptop: Laptop, rough: RoughClient, kitchen: str
) -> None:
    too_few = {"scaling": {"min_replicas": 3, "max_replicas": 1}}
    async with deployed(platform, laptop, kitchen, "steady") as url:
        before = await rough.call("GET", "/api/v2/deployments/steady")
        for fields in ({"bento": "kitchen:v9"}, {"services": {"Kitchen": too_few}}):
            path = "/api/v2/deployments/steady"
            assert (await rough.refusal("PUT", path, {**KITCHEN, **fields})).status == 400
        assert await rough.call("GET", "/api/v2/deployments/steady") == before
        assert await call(f"{url}/echo", text="still here") == "still here"


async def test_of_two_deploys_of_one_name_one_wins(
    platform: Platform, laptop: Laptop, kitchen: str
) -> None:
    command = ("deploy", kitchen, "-n", "twice")
    failures = await asyncio.gather(
        laptop.bentoml(*command), laptop.bentoml(*command), return_exceptions=True
    )
    (lost,) = [failure for failure in failures if isinstance(failure, AssertionError)]
    assert "deployment 'twice' already exists; choose another name" in str(lost)
    assert await call(f"{await platform.url_of('twice')}/echo", text="hi") == "hi"
    assert len((await platform.ask("twice"))["revisions"]) == 1
    await platform.delete("twice")
