"""Cold starts on a node whose clock is an hour off: its kubelet is the test, which writes what the
engine reads with times of that clock. The node, its pods and their scheduling are the cluster's."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from tests.cluster.engine_under_test import ClusterEngineUnderTest
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.support.deploy.running import states, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.together,
    pytest.mark.alone,  # the node would take others' pods that have no room
    pytest.mark.timeout(180),
]
SIZE = {"cpu": "2000", "memory": "64Gi", "pods": "2"}
"""It has room for what no other node has room for."""
HOUR_S = 3600.0
WHOLE_S = 1.0
"""A cluster's times are whole seconds."""
S = ReplicaState


@pytest.fixture
def node(cluster: Installation, kubectl: Kubectl) -> Iterator[str]:
    """Its name, which no node had that has gone: the cluster would miss that one's heartbeats."""
    name = f"another-hour-{uuid.uuid4().hex[:8]}"
    kubectl.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}])
    ready = condition("Ready", True, time.time())
    status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [ready]}
    patched(kubectl, ("node", name), status)
    untainted = "--output=jsonpath={.metadata.name}{.spec.taints}."  # not until it is ready
    kubectl.wait("get", "node", name, untainted, timeout_s=30, word=f"{name}.")
    yield name
    kubectl("delete", "node", name)


@pytest.fixture
async def under_test(
    node: str, cluster: Installation, kubectl: Kubectl
) -> AsyncIterator[ClusterEngineUnderTest]:
    async with ClusterEngineUnderTest(cluster, kubectl).running() as made:
        yield made


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
async def test_a_cold_start_lasts_as_long_whatever_the_clock_of_its_node_says(
    under_test: ClusterEngineUnderTest, kubectl: Kubectl, node: str, ahead_s: float
) -> None:
    given = under_test.too_large("hello")
    asked_at = time.time()
    await under_test.engine.expect([given])
    await under_test.engine.scale(given, 1)
    await until(under_test.engine, partial(is_on, node), under_test.patience_s)
    (replica,) = under_test.engine.replicas()
    starts = partial(patched, kubectl, ("pod", replica.id, f"--namespace={under_test.namespace}"))
    begun_at = time.time() + ahead_s
    await asyncio.to_thread(starts, running(begun_at, None))
    await under_test.looked()
    await asyncio.to_thread(starts, running(begun_at, time.time() + ahead_s))
    (found,) = await until(under_test.engine, states(S.READY), under_test.patience_s)
    ready_at = time.time()
    await under_test.engine.scale(given, 0)
    await until(under_test.engine, states(S.STOPPING), under_test.patience_s)
    await under_test.end(found)

    first, last = found.phases[0].start, found.phases[-1].end
    assert last is not None
    assert asked_at - WHOLE_S <= first <= last <= ready_at + WHOLE_S
    lasted_s = sum((phase.end or last) - phase.start for phase in found.phases)
    assert lasted_s == pytest.approx(found.cold_start_s, rel=0.05)
    assert lasted_s == pytest.approx(ready_at - asked_at, abs=WHOLE_S)


def is_on(node: str, replicas: Sequence[Replica]) -> bool:
    return [each.node for each in replicas] == [node]


def running(begun_at: float, ready_at: float | None) -> dict[str, object]:
    """The status of a pod whose program was started, and is ready, at these times."""
    ready = ready_at is not None
    container = {
        "name": "replica",
        "image": "none",
        "imageID": "none",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": {"running": {"startedAt": written(begun_at)}},
    }
    before = ("Initialized", "PodReadyToStartContainers")
    conditions = [condition(kind, True, begun_at) for kind in before]
    for kind in ("ContainersReady", "Ready"):
        conditions.append(condition(kind, ready, begun_at if ready_at is None else ready_at))
    return {
        "phase": "Running",
        "startTime": written(begun_at),
        "podIP": "10.201.250.1",
        "podIPs": [{"ip": "10.201.250.1"}],
        "conditions": conditions,
        "containerStatuses": [container],
    }


def condition(kind: str, holds: bool, since: float) -> dict[str, str]:
    return {"type": kind, "status": str(holds), "lastTransitionTime": written(since)}


def written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def patched(kubectl: Kubectl, what: tuple[str, ...], status: Mapping[str, object]) -> None:
    """Writes a status as a kubelet does."""
    patch = json.dumps({"status": status})
    flags = ("--subresource=status", "--type=strategic", "--field-manager=kubelet")
    kubectl("patch", *what, *flags, f"--patch={patch}")
