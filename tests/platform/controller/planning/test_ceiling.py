"""What one replica can have here at most, and what becomes of those that ask for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.instance_types import sizes
from hotplate.platform.controller.planning.workloads import (
    WorkloadRules,
    least_amounts,
    notes,
    services_of,
)
from hotplate.platform.errors import Invalid
from tests.support.control_plane.cloud import MANIFEST as CLOUD_MANIFEST
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import RULES
from tests.support.control_plane.situations import deployment, revision

SMALL = Resources(2, 16 * GIB)
LARGE = Resources(8, 64 * GIB, 2)
NEVER = r"services\.Echo\.config\.resources: .*'cpu\.2'"
NOTE = " beside the 5.9 for model files (arena_bytes)"
TWO = {
    "entry_service": "Chat",
    "services": [
        {"name": "Chat", "dependencies": [{"service": "Back"}]},
        {"name": "Back", "config": {"resources": {"cpu": "4", "memory": "1Gi"}}},
    ],
}


def rules(most: Resources, *, shares: bool = True) -> WorkloadRules:
    return replace(RULES, ceiling=Ceiling(most, shares, NOTE), instance_types=sizes(most, "H200"))


def refusal(most: Resources, shares: bool = True, **asked: Any) -> str:
    resources = Resources(**asked)
    return Ceiling(most, shares, NOTE).refusal(resources, sizes(most, "H200"))


def test_shared_cpus_count_as_all_there_are_and_reserved_ones_as_they_were_asked_for() -> None:
    asked = Resources(4, GIB, 0.5)
    assert Ceiling(SMALL, shares_cpus=True).cap(asked) == replace(asked, cpus=2)
    assert Ceiling(SMALL).cap(asked) == asked
    assert Ceiling(SMALL, shares_cpus=True).cap(Resources(1.5)) == Resources(1.5)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            refusal(SMALL, memory_bytes=100 * GIB),
            "a replica asks for 100 GiB of memory, and no machine here has more than 16 GiB of "
            f"memory{NOTE}; ask for less: the largest instance type is 'cpu.2' (2 CPUs, 4 GiB of "
            "memory)",
        ),
        (
            refusal(SMALL, shares=False, cpus=4, gpus=0.5),
            "a replica asks for 0.5 GPUs and 4 CPUs, and no machine here has more than 0 GPUs and "
            "2 CPUs; ask for less: the largest instance type is 'cpu.2' (2 CPUs, 4 GiB of memory)",
        ),
        (
            refusal(LARGE, gpus=4, cpus=99),
            "a replica asks for 4 GPUs, and no machine here has more than 2 GPUs; ask for less: "
            "the largest instance type is 'gpu.H200.2' (2 GPUs, 8 CPUs, 64 GiB of memory)",
        ),
        (
            refusal(Resources(0.5, GIB), memory_bytes=GIB + 1024**2),
            "a replica asks for 1.001 GiB of memory, and no machine here has more than 1 GiB of "
            f"memory{NOTE}; ask for less",
        ),
        (refusal(SMALL, cpus=400, memory_bytes=16 * GIB), ""),
        (refusal(SMALL, shares=False, cpus=2), ""),
        (refusal(LARGE, gpus=2), ""),
        (refusal(LARGE, gpus=0.5), ""),
    ],
)
def test_what_can_never_run_is_told_with_the_limit_and_the_largest_type(
    said: str, sentence: str
) -> None:
    assert said == sentence


def test_each_service_of_a_bento_is_looked_at() -> None:
    back = {"services": {"Back": {"config_overrides": {"resources": {"memory": "99Gi"}}}}}
    with pytest.raises(Invalid, match=r"services.Back.config.resources: .* 99 GiB of memory"):
        notes(TWO, back, rules(SMALL))
    with pytest.raises(Invalid, match=r"services.Back.config.resources: .* 4 CPUs, .* 2 CPUs"):
        notes(TWO, {}, rules(SMALL, shares=False))
    assert notes(TWO, {}, rules(LARGE, shares=False)) == []
    assert notes(TWO, {}, rules(SMALL)) == [
        (
            "CpusCapped",
            "service 'Back' asks for 4 CPUs and this machine has 2 CPUs: it is counted as 2, "
            "and shares them with other replicas that need them",
        )
    ]


def test_everything_counts_the_cpus_that_there_are() -> None:
    """Places, shares and quotas; slots and threads, too, are made from the workload's resources."""
    row = revision(1)
    row = replace(row, bento=replace(row.bento, manifest=TWO), config={}, ports={"Back": 7999})
    _, back = services_of(deployment(row, row), row, [], rules(SMALL))
    assert back.workload.resources == Resources(2, GIB)
    twice = {"services": {"Back": {"scaling": {"min_replicas": 2}}}}
    assert least_amounts(TWO, twice, [], rules(SMALL)).cpus == 4
    assert least_amounts(TWO, twice, [], rules(SMALL, shares=False)).cpus == 8


@pytest.mark.parametrize(
    ("gone", "resources"),
    [("cpu.8", Resources(2, 16 * GIB)), ("gpu.NVIDIA H200.4", Resources(gpus=4))],
)
def test_a_stored_type_that_the_machine_does_not_offer_any_more_breaks_nothing(
    gone: str, resources: Resources
) -> None:
    """It waits, if there is no room, and is refused when it is rolled out again."""
    row = revision(1)
    config = {"services": {"Chat": {"instance_type": gone}}}
    row = replace(row, bento=replace(row.bento, manifest=TWO), config=config, ports={"Back": 1})
    chat, _ = services_of(deployment(row, row), row, [], rules(SMALL))
    assert chat.workload.resources == resources
    smaller = rules(Resources(2, 8 * GIB))
    with pytest.raises(Invalid, match=r"services.Chat.instance_type: a replica asks for "):
        notes(TWO, config, smaller)


def resources(**amounts: object) -> dict[str, Any]:
    return {"services": {"Echo": {"config_overrides": {"resources": amounts}}}}


async def test_a_deployment_that_can_never_run_is_neither_made_nor_changed(cloud: Cloud) -> None:
    await cloud.push_bento()
    before = await cloud.deploy("fits", **resources(memory="1Gi"))
    path = "/api/v2/deployments/fits"
    for asked in ({"memory": "100Gi"}, {"gpu": 9}):
        with pytest.raises(Refused, match=NEVER) as refused:
            await cloud.deploy("never", **resources(**asked))
        assert refused.value.status == 400
        with pytest.raises(Refused, match=NEVER) as refused:
            await cloud.call("PUT", path, {"bento": "echo:v1", **resources(**asked)})
        assert refused.value.status == 400
    with pytest.raises(Refused) as missing:
        await cloud.call("GET", "/api/v2/deployments/never")
    assert missing.value.status == 404
    after = await cloud.call("GET", path)
    assert after["latest_revision"]["uid"] == before["latest_revision"]["uid"]


@pytest.mark.parametrize("method", ["POST", "PUT", "void_update"])
async def test_capped_cpus_are_an_event_of_each_roll_out(cloud: Cloud, method: str) -> None:
    asked = CLOUD_MANIFEST | {"services": [{"name": "Echo", "config": {"resources": {"cpu": "4"}}}]}
    await cloud.push_bento(manifest=asked)
    await cloud.deploy("chat", **resources(cpu=4 if method != "PUT" else 1))
    path = "/api/v2/deployments/chat"
    again = {"bento": "echo:v1", **resources(cpu=4)}
    if method == "PUT":
        await cloud.call("PUT", path, again)
        await cloud.call("PUT", path, again)  # changes nothing, so nothing is told
    elif method == "void_update":
        await cloud.call("PUT", f"{path}/void_update")
    events = await cloud.call("GET", "/api/v1/hotplate/deployments/chat/events")
    told = [event["message"] for event in events if event["kind"] == "CpusCapped"]
    assert len(told) == (2 if method == "void_update" else 1)
    assert told[0].startswith("service 'Echo' asks for 4 CPUs and this machine has 2 CPUs")


@pytest.mark.parametrize(
    ("most", "asked", "counted", "refused"),
    [
        (SMALL, Resources(2, 16 * GIB), 2, False),
        (SMALL, Resources(3, GIB), 2, False),
        (SMALL, Resources(1, 17 * GIB), 1, True),
        (SMALL, Resources(1, GIB, 1), 1, True),
        (LARGE, Resources(8, 64 * GIB, 2), 8, False),
        (LARGE, Resources(8, 64 * GIB, 3), 8, True),
    ],
)
def test_a_request_up_to_the_whole_machine_can_run(
    most: Resources, asked: Resources, counted: float, refused: bool
) -> None:
    ceiling = Ceiling(most, shares_cpus=True)
    assert ceiling.cap(asked).cpus == counted
    assert bool(ceiling.cap_note(asked)) is (counted != asked.cpus)
    assert bool(ceiling.refusal(asked, {})) is refused
    assert Ceiling(most).cap(asked) == asked


def test_the_nearest_type_is_of_the_same_kind() -> None:
    types = sizes(LARGE, "H200")
    ceiling = Ceiling(LARGE)
    assert "'gpu.H200.2'" in ceiling.refusal(Resources(1, GIB, 3), types)
    assert "'cpu.8'" in ceiling.refusal(Resources(9, GIB), types)
    only_cpus = sizes(SMALL)
    assert "'cpu.2'" in Ceiling(SMALL).refusal(Resources(1, GIB, 1), only_cpus)
    assert Ceiling(SMALL).refusal(Resources(1, GIB, 1), {}).endswith("ask for less")
