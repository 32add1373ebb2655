"""Requests that cannot be carried out: one sentence each, and nothing is lost or left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.gateway.callers import Caller
from tests.support.memory import memory_bytes
from tests.support.services.calling import call

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("unharmed")]


async def test_a_token_that_is_no_longer_good_is_told_with_what_to_do(
    platform: AnyPlatform, tmp_path: Path
) -> None:
    other = await Laptop.at(tmp_path, platform)
    context = tmp_path / ".yatai.yaml"
    context.write_text(context.read_text().replace(platform.token, "revoked"))
    said = await other.bentoml("deployment", "list", fails=True)
    assert "bentoml cloud login" in said
    assert "Traceback" not in said


MISTAKES = {
    "deployment get nope": "deployment 'nope' does not exist in this organization",
    "models pull nope:1": "model 'nope:1' does not exist in this organization",
    "deploy kitchen:v1 -n x --instance-type cpux.1": "no 'cpux.1'; did you mean 'cpu.1'?",
    "deploy kitchen:v1 -n x --scaling-min 3 --scaling-max 1": "min scaling values must be less",
}


async def test_the_client_shows_what_is_wrong_with_a_command(laptop: Laptop, kitchen: str) -> None:
    async def ask(command: str, sentence: str) -> None:
        said = await laptop.bentoml(*command.split(), fails=True)
        assert sentence in said
        assert "Traceback" not in said

    await asyncio.gather(*(ask(*mistake) for mistake in MISTAKES.items()))


KITCHEN = {"name": "x", "bento": "kitchen:v1"}
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no such bento": (
        {"bento": "nope:v1"},
        "bento 'nope:v1' does not exist here; push it first",
    ),
    "no such version": ({"bento": "kitchen:v9"}, "bento 'kitchen:v9' does not exist here"),
    "no bento at all": ({"bento": None}, "bento: null is not a string"),
    "a bad name": ({"name": "Not_A_Name"}, "'Not_A_Name' is not a deployment name"),
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


@pytest.mark.one_machine("a cluster may get a larger node")
async def test_what_no_machine_has_is_refused(rough: RoughClient, kitchen: str) -> None:
    asked = {"Kitchen": {"config_overrides": {"resources": {"gpu": 64}}}}
    refused = await rough.refusal("POST", "/api/v2/deployments", {**KITCHEN, "services": asked})
    sentence = "services.Kitchen.config.resources: a replica asks for 64 GPUs, and no machine here"
    assert refused.status == 400
    assert sentence in refused.message


@pytest.mark.parametrize(("fields", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_a_deployment_that_cannot_be_made_is_refused_and_leaves_nothing(
    rough: RoughClient, kitchen: str, fields: dict[str, object], sentence: str
) -> None:
    refused = await rough.refusal("POST", "/api/v2/deployments", {**KITCHEN, **fields})
    assert refused.status == 400
    assert sentence in refused.message
    assert (await rough.refusal("GET", "/api/v2/deployments/x")).status == 404


async def test_an_update_that_cannot_be_made_leaves_what_serves(
    platform: AnyPlatform, rough: RoughClient, kitchen: str
) -> None:
    path = "/api/v2/deployments/unmoved"
    too_few = {"scaling": {"min_replicas": 3, "max_replicas": 1}}
    await rough.deploy("unmoved", kitchen)
    await rough.settled("unmoved", "running")
    before = await rough.call("GET", path)
    for fields in ({"bento": "kitchen:v9"}, {"services": {"Kitchen": too_few}}):
        assert (await rough.refusal("PUT", path, {**KITCHEN, **fields})).status == 400
    assert await rough.call("GET", path) == before
    url = await platform.url_of("unmoved")
    assert await call(f"{url}/echo", text="still here") == "still here"
    await platform.delete("unmoved")


@pytest.mark.one_machine("it looks at the platform's processes")
async def test_malformed_and_slow_callers_by_the_hundred_cost_little_and_others_are_served(
    platform: Platform, rough: RoughClient, kitchen: str
) -> None:
    """At the API, and at a deployment with one slot."""
    await rough.deploy("besieged", kitchen, Kitchen={"scaling": {"min_replicas": 1}})
    await rough.settled("besieged", "running")
    url = await platform.url_of("besieged")
    ports = (platform.port, int(url.rpartition(":")[2]))
    before = memory_bytes(platform.pid("control-plane")) + memory_bytes(platform.pid("gateway"))
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
    token = f"X-YATAI-API-TOKEN: {platform.token}\r\n".encode()
    slow = [await Caller.to(port) for port in ports for _ in range(200)]
    for number, caller in enumerate(slow):
        body = token + b"Content-Length: 9999\r\n\r\n{"
        caller.send_raw(head + (body if number % 2 else b"X-Slow: "))
    for port in ports:
        for data, status in (
            (b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n", 431),
            (head + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"\x16\x03\x01\r\n\r\n", 400),
        ):
            caller = await Caller.to(port)
            caller.send_raw(data)
            answer = await caller.answer()
            assert (answer.status, "\n" in answer.error["message"]) == (status, False)
            caller.leave()
    for _ in range(10):
        assert await call(f"{url}/echo", text="served") == "served"
        assert (await platform.ask("besieged"))["status"] == "running"
    assert sum(caller.reader.at_eof() for caller in slow) == 0, "all of them still hold on"
    after = memory_bytes(platform.pid("control-plane")) + memory_bytes(platform.pid("gateway"))
    assert after - before < 48 << 20
    for caller in slow:
        caller.leave()
    await platform.delete("besieged")


async def test_of_two_deploys_of_one_name_one_wins(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
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
