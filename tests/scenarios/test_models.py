"""A deployment with a model: read once per machine, and every cold start on record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.cold_start import ColdStart
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import READER
from tests.support.services.calling import call

pytestmark = pytest.mark.client

NAME = "reader"
MODEL_BYTES = 8 << 20
SMALL_BYTES = 1 << 20
PHASES = {"instance", "environment", "process", "weights", "init"}
SAVE = f"""
import bentoml, numpy, sys
from safetensors.numpy import save_file
tensors = {{
    "ones": numpy.ones({MODEL_BYTES} // 8, dtype="float32"),
    "twos": numpy.full({MODEL_BYTES} // 8, 2, dtype="float32"),
}}
with bentoml.models.create("numbers:1") as model:
    save_file(tensors, model.path_of("model.safetensors"))
bentoml.build("service:Reader", name="reader", version="v1", build_ctx=sys.argv[1])
"""
SUMS = {"ones": MODEL_BYTES / 8, "twos": MODEL_BYTES / 4}


@pytest.fixture(scope="module")
def url(platform: AnyPlatform, laptop: Laptop, kitchen: str) -> Iterator[str]:
    """A deployment whose service loads a Safetensors file; kitchen: the environment is there."""
    with asyncio.Runner() as runner:
        runner.run(laptop.python(SAVE, str(laptop.project("reader", READER))))
        deployment = deployed(platform, laptop, "reader:v1", NAME)
        yield runner.run(deployment.__aenter__())
        runner.run(deployment.__aexit__(None, None, None))


@pytest.mark.essential
async def test_a_pushed_model_is_loaded(url: str) -> None:
    assert await call(f"{url}/sums") == SUMS


async def test_where_its_chunks_are_is_told(
    platform: AnyPlatform, rough: RoughClient, url: str
) -> None:
    async def on_a_node() -> bool:
        found = await rough.call("GET", "/api/v1/hotplate/models/numbers/1")
        return any(node["disk_bytes"] >= MODEL_BYTES for node in found["nodes"])

    await until(on_a_node)
    found = await rough.call("GET", "/api/v1/hotplate/models/numbers/1")
    assert (found["tag"], found["used_by"]) == ("numbers:1", [NAME])
    sizes = {file["path"]: file["size_bytes"] for file in found["files"]}
    assert sizes["model.safetensors"] > MODEL_BYTES
    assert found["size_bytes"] >= sum(sizes.values())
    assert all(node["name"] and node["memory_bytes"] >= 0 for node in found["nodes"])


@pytest.mark.essential
async def test_every_cold_start_is_on_record(
    platform: AnyPlatform, rough: RoughClient, url: str
) -> None:
    (replica,) = await platform.replicas(NAME)
    (start,) = await platform.ask(NAME, "/cold_starts")
    assert start["replica"] == replica["id"]
    for phases in (replica["phases"], start["phases"]):
        assert {phase["name"] for phase in phases} == PHASES
        assert all(phase["start"] <= phase["end"] for phase in phases)
    recorded = ColdStart.of(start)
    assert recorded.share_error < 1e-3
    assert recorded.gap_s < 0.01 * recorded.whole_s
    said = await platform.hotplate("status", NAME)
    assert all(f"\n  {phase} " in said for phase in PHASES)
    assert await phases_in_metrics(platform, rough) == PHASES


async def phases_in_metrics(platform: AnyPlatform, rough: RoughClient) -> set[str]:
    """The phases of which Prometheus is told a length, for our deployment."""
    draft = {"name": "prometheus", "description": "", "scopes": ["metrics"]}
    token = await rough.call("POST", "/api/v1/api_tokens", draft)
    shown = {"Authorization": f"Bearer {token['token']}"}
    url = f"{platform.url}/metrics"
    async with aiohttp.ClientSession(headers=shown) as http, http.get(url) as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    name = "hotplate_controller_cold_start_phase_seconds_count"
    ours = f"{platform.organization}/{NAME}"
    return {
        sample.labels["phase"]
        for family in families
        for sample in family.samples
        if sample.name == name and sample.labels["deployment"] == ours
    }


@pytest.mark.one_machine("it looks at the platform's processes")
async def test_no_replica_or_revision_reads_the_model_again(
    platform: Platform, laptop: Laptop, rough: RoughClient, url: str
) -> None:
    once = await agent_status(platform)
    assert once["origin_bytes"] > MODEL_BYTES

    async def two() -> bool:
        replicas = await platform.replicas(NAME)
        return [(r["revision"], r["state"]) for r in replicas] == [(2, "ready")] * 2

    await rough.update(NAME, "reader:v1", Reader=replicas_of(2, 2))
    await until(two)
    assert (await agent_status(platform))["origin_bytes"] == once["origin_bytes"]

    async def third_serves() -> bool:
        return bool((await platform.ask(NAME))["serving"] == 3)

    first = Bento.read(laptop.home / "bentos" / "reader" / "v1")
    other = first.changed("reader-2", {"src/service.py": READER + "\n# another bento\n"})
    await rough.update(NAME, await rough.push(other), Reader=replicas_of(1, 2))
    await until(third_serves)
    assert await call(f"{url}/sums") == SUMS
    fetched = (await agent_status(platform))["origin_bytes"] - once["origin_bytes"]
    assert fetched < SMALL_BYTES  # the bento itself


def replicas_of(least: int, most: int) -> dict[str, Any]:
    return {"scaling": {"min_replicas": least, "max_replicas": most}}


async def agent_status(platform: Platform) -> Any:
    headers = {"Authorization": f"Bearer {(platform.data / 'cluster-token').read_text().strip()}"}
    url = f"http://127.0.0.1:{platform.noted('ports')['agent']}/v1/status"
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as answer:
        return await answer.json()
