"""What people and clusters do to the engine's objects, and what it does then."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import Workload
from tests.cluster.engine_under_test import ClusterEngineUnderTest
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.support.deploy.running import states, until

pytestmark = [pytest.mark.cluster, pytest.mark.together, pytest.mark.timeout(180)]
S = ReplicaState
PUT_RIGHT_S = 10.0
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
OWN_KINDS = (
    "deployment",
    "service",
    "configmap",
    "secret",
    "poddisruptionbudget",
    "serviceaccount",
)


@pytest.fixture
async def under_test(
    cluster: Installation, kubectl: Kubectl
) -> AsyncIterator[ClusterEngineUnderTest]:
    async with ClusterEngineUnderTest(cluster, kubectl).running() as made:
        yield made


class Objects:
    """What there is in the namespace of the organization."""

    def __init__(self, under_test: ClusterEngineUnderTest, kubectl: Kubectl) -> None:
        self._own, self._kubectl = f"--namespace={under_test.namespace}", kubectl

    def __call__(self, *arguments: str) -> str:
        return self._kubectl(*arguments, self._own)

    def read(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", kind, name, "--output=json"))
        return found

    def have(self, kind: str, names: set[str]) -> bool:
        return names <= self.names(kind)

    def names(self, kind: str) -> set[str]:
        return set(self("get", kind, "--output=name").split())


@pytest.fixture
def objects(under_test: ClusterEngineUnderTest, kubectl: Kubectl) -> Objects:
    return Objects(under_test, kubectl)


async def ready(under_test: ClusterEngineUnderTest, given: Workload, count: int = 1) -> Replica:
    await under_test.engine.expect([given])
    await under_test.engine.scale(given, count)
    found = await until(under_test.engine, states(*[S.READY] * count), under_test.patience_s)
    return found[0]


def writes(cluster: Installation, since: int, namespace: str) -> list[dict[str, Any]]:
    """By the engine, which is the admin here; the cluster's own controllers have other names."""
    lines = cluster.layout.audit_log.read_bytes()[since:].splitlines()
    asked = [json.loads(line) for line in lines if namespace.encode() in line]
    return [
        each for each in asked if each["verb"] in WRITES and each["user"]["username"] == "admin"
    ]


async def test_a_second_look_at_fifty_deployments_writes_nothing(
    cluster: Installation, under_test: ClusterEngineUnderTest, objects: Objects
) -> None:
    fifty = [under_test.serving(f"d-{number}") for number in range(50)]
    await under_test.engine.expect(fifty)
    await under_test.written(lambda: len(objects.names("deployment")) == 50, 60.0)
    await under_test.looked()
    before = cluster.layout.audit_log.stat().st_size
    await under_test.restart()
    await under_test.engine.expect(fifty)
    await under_test.looked()
    await under_test.looked()
    assert writes(cluster, before, under_test.namespace) == []


async def test_numbers_of_replicas_are_the_scalers_from_birth(
    under_test: ClusterEngineUnderTest, objects: Objects
) -> None:
    await ready(under_test, under_test.serving("hello"))
    fields = json.loads(
        objects("get", "deployment", "h-hello-1-hello", "--output=json", "--show-managed-fields")
    )["metadata"]["managedFields"]
    owners = {
        each["manager"] for each in fields if "f:replicas" in each["fieldsV1"].get("f:spec", {})
    }
    assert owners == {"hotplate-scaler"}
    deployers = [each for each in fields if each["manager"] == "hotplate-deployer"]
    assert "f:template" in deployers[0]["fieldsV1"]["f:spec"]


async def test_what_somebody_deletes_or_changes_is_put_right(
    under_test: ClusterEngineUnderTest, objects: Objects
) -> None:
    await ready(under_test, under_test.serving("hello"))
    for kind in OWN_KINDS[:-1]:
        before = {name for name in objects.names(kind) if "/h-hello-1-hello" in name}
        assert before
        objects("delete", *before, "--wait=false", "--cascade=background")
        await under_test.written(partial(objects.have, kind, before))
    objects("label", "deployment", "h-hello-1-hello", "hotplate.dev/service=evil", "--overwrite")

    def right() -> bool:
        seen = objects.read("deployment", "h-hello-1-hello")
        return bool(seen["metadata"]["labels"]["hotplate.dev/service"] == "hello")

    await under_test.written(right)
    await until(under_test.engine, states(S.READY), under_test.patience_s)


async def test_an_anchor_that_is_deleted_drains_and_is_made_anew(
    under_test: ClusterEngineUnderTest, objects: Objects
) -> None:
    replica = await ready(under_test, under_test.serving("hello"))
    uid = objects.read("configmap", "hello")["metadata"]["uid"]
    objects("delete", "configmap", "hello", "--wait=false")

    def another(replicas: Sequence[Replica]) -> bool:
        return states(S.READY)(replicas) and replicas[0].uid != replica.uid

    await until(under_test.engine, another, under_test.patience_s)
    assert objects.read("configmap", "hello")["metadata"]["uid"] != uid


async def test_a_deployment_that_is_gone_leaves_nothing(
    under_test: ClusterEngineUnderTest, objects: Objects
) -> None:
    await ready(under_test, under_test.serving("hello"))
    await under_test.engine.expect([])
    kinds = ",".join((*OWN_KINDS, "pod"))
    ours = "--selector=app.kubernetes.io/managed-by=hotplate"
    await under_test.written(lambda: not objects("get", kinds, ours, "--output=name"), 30.0)


async def test_a_quota_that_refuses_is_a_replica_that_waits(
    under_test: ClusterEngineUnderTest, objects: Objects
) -> None:
    given = under_test.serving("hello")
    await ready(under_test, given)
    objects("create", "quota", "small", "--hard=pods=1")
    # Until its use is counted, it holds nobody up.
    objects("wait", "quota", "small", "--for=jsonpath={.status.hard.pods}=1", "--timeout=30s")
    await under_test.engine.scale(given, 2)
    found = await until(under_test.engine, refused_by("exceeded quota"), under_test.patience_s)
    assert sorted(each.state for each in found) == [S.PENDING, S.READY]
    objects("delete", "quota", "small")
    await until(under_test.engine, states(S.READY, S.READY), under_test.patience_s)


def refused_by(words: str) -> Callable[[Sequence[Replica]], bool]:
    return lambda replicas: any(words in each.reason for each in replicas)


async def test_an_image_that_is_not_there_is_said(under_test: ClusterEngineUnderTest) -> None:
    await under_test.engine.scale(under_test.without_image("hello"), 1)
    words = "The image hotplate.test/none:1 is not there"
    (found,) = await until(under_test.engine, refused_by(words), under_test.patience_s)
    assert found.state is S.STARTING


async def test_a_pod_that_is_evicted_ends_what_it_has_and_another_comes(
    under_test: ClusterEngineUnderTest, objects: Objects, kubectl: Kubectl
) -> None:
    replica = await ready(under_test, under_test.serving("hello"))
    name, namespace = replica.id, under_test.namespace
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    # Until its controller has counted a pod, a budget lets none be evicted.
    counted = "--for=jsonpath={.status.disruptionsAllowed}=1"
    objects("wait", "poddisruptionbudget", "h-hello-1-hello", counted, "--timeout=30s")
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    kubectl("create", f"--raw={path}", "--filename=-", given=json.dumps(eviction))
    stopping = await until(
        under_test.engine,
        lambda all: any(each.uid == replica.uid and each.state is S.STOPPING for each in all),
        under_test.patience_s,
    )
    assert stopping
    (after,) = await until(under_test.engine, states(S.READY), under_test.patience_s)
    assert after.uid != replica.uid
    assert await under_test.engine.logs(replica.id, 10) == ["it serves"]


@pytest.mark.alone
async def test_an_api_server_that_is_away_ends_nothing_and_is_followed_again(
    cluster: Installation, under_test: ClusterEngineUnderTest, kubectl: Kubectl
) -> None:
    given = under_test.serving("hello")
    before = await ready(under_test, given)
    cluster.kill("apiserver")
    try:
        await under_test.engine.scale(given, 2)
        assert [each.uid for each in under_test.engine.replicas()] == [before.uid]
    finally:
        cluster.start("apiserver")
    kubectl.wait("get", "--raw=/readyz", timeout_s=60)
    after = await until(under_test.engine, states(S.READY, S.READY), under_test.patience_s)
    assert before.uid in {each.uid for each in after}
