"""Gateways end, by a word and without one, while they are called."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.cluster.calls import Calls, calling
from tests.cluster.helm import RELEASE
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import node_address
from tests.cluster.processes import kill
from tests.cluster.release import GATEWAY_PORT, Release
from tests.support.patience import until

pytestmark = pytest.mark.cluster
CALLERS = 10
EVERY_S = 0.1
"""Each asks again so long after its answer: 100 requests a second of all ten."""
WITHIN_S = 2.0
IN_POD = 8080
"""Where a gateway listens in its pod."""


@pytest.fixture
def gateways(kubectl: Kubectl, installed: Release) -> list[dict[str, Any]]:
    """The pods of both, which are ready."""
    kubectl("rollout", "status", "deployment/hotplate-gateway", f"--namespace={RELEASE}")
    selector = "--selector=app.kubernetes.io/name=hotplate-gateway"
    said = kubectl("get", "pods", f"--namespace={RELEASE}", selector, "--output=json")
    found = [pod for pod in json.loads(said)["items"] if "deletionTimestamp" not in pod["metadata"]]
    assert len(found) == 2
    return found


async def until_answered(calls: Calls, count: int) -> None:
    await until(lambda: len(calls.answered) >= count)


async def test_a_gateway_that_is_told_to_end_fails_nobody(
    kubectl: Kubectl, gateways: list[dict[str, Any]], hello: str
) -> None:
    """Those who stay connected are told to come elsewhere, and those who come find another one."""
    kept, new = Calls(hello), Calls(hello)
    leaving = gateways[0]["metadata"]["name"]
    nodes = [node_address(1), node_address(2)]
    staying = [kept.keep(nodes[n % 2], GATEWAY_PORT, EVERY_S) for n in range(CALLERS)]
    coming = [new.come_anew(nodes[n % 2], GATEWAY_PORT, EVERY_S) for n in range(CALLERS)]
    async with calling(*staying, *coming):
        await until_answered(kept, 50)
        await until_answered(new, 50)
        deleting = ["delete", "pod", leaving, f"--namespace={RELEASE}", "--timeout=60s"]
        await asyncio.to_thread(kubectl, *deleting)
        await until_answered(kept, len(kept.answered) + 50)
    assert kept.failures == []
    assert new.failures == []
    assert kept.told_to_leave > 0, "some were connected to the one that ended"


async def test_a_gateway_that_is_killed_cuts_its_own_callers_and_no_others(
    kubectl: Kubectl, gateways: list[dict[str, Any]], hello: str
) -> None:
    """What it owned is owned by the other one within two seconds."""
    for victim, other in (gateways, reversed(gateways)):
        theirs, others = Calls(hello), Calls(hello)
        there = [theirs.keep(victim["status"]["podIP"], IN_POD, EVERY_S) for _ in range(CALLERS)]
        elsewhere = [others.keep(other["status"]["podIP"], IN_POD, EVERY_S) for _ in range(CALLERS)]
        async with calling(*there, *elsewhere):
            await until_answered(theirs, 50)
            await until_answered(others, 50)
            kill(victim, "gateway")
            await until_answered(others, len(others.answered) + 200)
            await until_answered(theirs, len(theirs.answered) + 50)
        assert len(theirs.failures) >= CALLERS, "it was killed while they were connected"
        # What the other one had passed on may have begun, so it is not sent again; no one is cut.
        assert len(others.failures) <= CALLERS
        assert all("the gateway that has its queue ended" in why for _, why in others.failures)
        assert others.longest_gap_s() < WITHIN_S
