"""CPUs that several deployments want, shared or each its own; and what no machine has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hotplate.deploy.local.machine import detect
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import IMAGE, SLEEPY
from tests.support.services.calling import call

pytestmark = pytest.mark.client

CPUS = detect().cpus
ASKED = {"half": CPUS / 2, "whole": int(CPUS), "twice": f"{2 * CPUS:g}"}
"""CPUs of three services; two of them exclude each other where CPUs are promised once."""
THREADS = [str(max(1, int(cpus))) for cpus in (CPUS / 2, CPUS, CPUS)]
AWAKE = {"scaling": {"min_replicas": 1}}

COUNTED = (
    IMAGE
    + """

@bentoml.service(image=image, resources={"cpu": ASKED})
class Counted:
    @bentoml.api
    def threads(self) -> str:
        return os.environ["OMP_NUM_THREADS"]
"""
)
PAIR = (
    IMAGE
    + """

@bentoml.service(image=image, resources={"memory": "4000Gi"})
class Back:
    @bentoml.api
    def half(self) -> int:
        return 1


@bentoml.service(image=image)
class Front:
    back = bentoml.depends(Back)

    @bentoml.api
    def whole(self) -> int:
        return 2
"""
)


@pytest.mark.usefixtures("kitchen")  # its environment is theirs
@pytest.mark.one_machine("it is about the room on one machine")
async def test_services_that_ask_for_more_cpus_than_there_are_answer_side_by_side(
    platform: Platform, laptop: Laptop
) -> None:
    try:
        for name, asked in ASKED.items():
            bento = await laptop.build(f"cpus-{name}", COUNTED.replace("ASKED", repr(asked)))
            await laptop.deploy(name, bento, Counted=AWAKE)
        urls = [await platform.url_of(name) for name in ASKED]
        assert await asyncio.gather(*(call(f"{url}/threads") for url in urls)) == THREADS
        for name in ASKED:
            events = await platform.ask(name, "/events")
            told = [event["message"] for event in events if event["kind"] == "CpusCapped"]
            assert len(told) == (name == "twice")
            assert all(f"asks for {2 * CPUS:g} CPUs" in message for message in told)
        assert f" of 4 x {CPUS:.1f} CPUs, " in await platform.hotplate("status")
    finally:
        await asyncio.gather(*(platform.delete(name) for name in ASKED))


@pytest.mark.usefixtures("kitchen", "unharmed")
@pytest.mark.one_machine("a cluster may get a larger node")
async def test_the_client_prints_why_a_service_of_a_bento_can_never_run(
    platform: Platform, laptop: Laptop
) -> None:
    bento = await laptop.build("pair-of-sizes", PAIR)
    said = await laptop.bentoml("deploy", bento, "-n", "pair", fails=True)
    assert "services.Back.config.resources: a replica asks for 4000 GiB of memory, and no" in said
    assert "ask for less: the largest instance type is 'cpu." in said

    small = {"Back": {"config_overrides": {"resources": {"memory": "256Mi"}}}}
    async with deployed(platform, laptop, bento, "pair", Front={"scaling": SLEEPY}, **small) as url:
        assert await call(f"{url}/whole") == 2
        small["Back"]["config_overrides"]["resources"] = {"gpu": "99"}
        file = laptop.home / "pair.yaml"
        file.write_text(json.dumps({"name": "pair", "bento": bento, "services": small}))
        update = ("deployment", "update", "-f", str(file))
        assert "asks for 99 GPUs, and no machine" in await laptop.bentoml(*update, fails=True)
        assert await call(f"{url}/whole") == 2


def asking(cpus: float) -> dict[str, object]:
    return {"config_overrides": {"resources": {"cpu": cpus}}, **AWAKE}


@pytest.mark.one_machine("it starts platforms of its own")
async def test_where_cpus_are_reserved_others_wait_and_more_than_there_are_is_refused(
    platform: Platform, bento: Bento, tmp_path: Path
) -> None:
    """Also what was deployed before, while they were shared: it waits, and nothing else does."""
    never = f"asks for {2 * CPUS:g} CPUs, and no machine here has more than"
    async with (
        running(tmp_path / "data", platform, settings='cpus = "share"\n') as strict,
        RoughClient(strict) as rough,
    ):
        tag = await rough.push(bento)
        await rough.deploy("before", tag, Kitchen=asking(2 * CPUS))
        await rough.settled("before", "running")
        assert await strict.stop() == 0
        file = strict.data / "hotplate.toml"
        file.write_text(file.read_text().replace('"share"', '"reserve"'))
        await strict.start()

        async def told() -> bool:
            reason = (await strict.ask("before"))["reason"]
            return f"needs {2 * CPUS:.1f} CPUs: this machine has {CPUS:.1f}; ask for less" in reason

        await until(told)
        again = await rough.refusal("PUT", "/api/v2/deployments/before/void_update")
        fields = {"name": "never", "bento": tag, "services": {"Kitchen": asking(2 * CPUS)}}
        refused = await rough.refusal("POST", "/api/v2/deployments", fields)
        assert (again.status, refused.status) == (400, 400)
        assert never in again.message
        assert never in refused.message

        await rough.deploy("first", tag, Kitchen=asking(CPUS))
        await rough.settled("first", "running")
        await rough.deploy("second", tag, Kitchen=asking(CPUS / 2))

        async def waits() -> bool:
            return "CPUs are wanted and " in (await strict.ask("second"))["reason"]

        await until(waits)
        assert f" of {CPUS:.1f} CPUs, " in await strict.hotplate("status")
        await strict.delete("before")
