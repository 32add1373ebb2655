"""The engine on an API server in memory: it goes on wherever it, a watch or a request was ended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.engine import KubernetesEngine
from hotplate.deploy.cluster.kinds import SECRET, Ref
from hotplate.deploy.cluster.pod_spec import PodReport, PodRuntime, PodSpec
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.errors import BeingPrepared, PrepareFailed, UnknownReplica
from hotplate.deploy.workload import Workload
from tests.support.deploy.cluster import AT, SERVING, ClusterInMemory, pod_spec, workload
from tests.support.deploy.cluster_server import ClusterServer
from tests.support.deploy.running import states
from tests.support.deploy.running import until as until_replicas
from tests.support.patience import until

S = ReplicaState
SETTINGS = ClusterSettings(look_s=0.1, seen_after_s=0.5)
STRIDE, LEAST_WRITES = 4, 25
"""A deployment's life has more writes than that; each test has every so many of them."""
UNMOUNTED = {
    "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": AT}],
    "containerStatuses": [
        {"name": "replica", "state": {"waiting": {"reason": "ContainerCreating"}}}
    ],
}
"""The status of a pod whose volumes are not there."""
FIRST, SECOND = workload(revision=1), workload(revision=2)


class OneImage(PodRuntime):
    report_path = ""

    def __init__(self) -> None:
        self.trouble: BeingPrepared | PrepareFailed | None = None
        self.asked = 0
        self.changed: Callable[[], None] = lambda: None

    async def pod_spec(self, given: Workload, service_account: str, namespace: str) -> PodSpec:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return pod_spec()

    def subscribe(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def reported(self, content: bytes) -> PodReport | None:
        return None


@pytest.fixture
async def server() -> AsyncIterator[ClusterServer]:
    async with ClusterServer(ClusterInMemory()).running() as made:
        yield made


@asynccontextmanager
async def engine_on(
    server: ClusterServer,
    runtime: PodRuntime | None = None,
    settings: ClusterSettings = SETTINGS,
) -> AsyncIterator[KubernetesEngine]:
    engine = KubernetesEngine(server.api(), runtime or OneImage(), lambda: ["acme"], settings)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def pods(server: ClusterServer) -> list[str]:
    """The Deployment of each."""
    return sorted(name.rpartition("-")[0] for name in server.cluster.pods)


def deployments(server: ClusterServer) -> set[str]:
    labels = [each["metadata"]["labels"] for each in server.cluster.objects.values()]
    return {each[names.DEPLOYMENT] for each in labels if names.DEPLOYMENT in each}


async def test_a_second_look_writes_nothing_nor_does_another_engine(server: ClusterServer) -> None:
    for _ in range(2):
        async with engine_on(server) as engine:
            await engine.expect([FIRST, SECOND])
            await engine.scale(FIRST, 2)
            await until_replicas(engine, states(S.READY, S.READY))
            written = len(server.writes)
            await asyncio.sleep(3 * SETTINGS.look_s)
            assert server.writes[written:] == []
    before = len(server.writes)
    async with engine_on(server) as engine:
        await engine.expect([FIRST, SECOND])
        await engine.scale(FIRST, 2)
        await asyncio.sleep(3 * SETTINGS.look_s)
    assert server.writes[before:] == []


async def test_what_is_named_while_it_looks_for_the_first_time_is_not_taken_for_what_nobody_wants(
    server: ClusterServer,
) -> None:
    """It looks at an organization after the other: one may be seen whole before all was named."""
    async with engine_on(server) as engine:
        await engine.expect([FIRST])
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))
    before, others = len(server.writes), [f"without-{number}" for number in range(100)]
    engine = KubernetesEngine(server.api(), OneImage(), lambda: ["acme", *others], SETTINGS)
    await engine.start()
    try:
        await engine.expect([FIRST])
        await asyncio.sleep(3 * SETTINGS.look_s)
        await until_replicas(engine, states(S.READY))
    finally:
        await engine.close()
    assert server.writes[before:] == []


async def test_an_organization_without_anything_is_looked_for_once(server: ClusterServer) -> None:
    async with engine_on(server) as engine:
        await asyncio.sleep(3 * SETTINGS.look_s)
        assert server.reads.count("/api/v1/namespaces/hotplate-t-acme") == 1
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))


async def live(engine: KubernetesEngine, server: ClusterServer) -> None:
    """A deployment comes, grows, gets a new revision, shrinks, and goes."""
    await engine.expect([FIRST])
    await engine.scale(FIRST, 2)
    await until(lambda: len(pods(server)) == 2)
    await engine.expect([FIRST, SECOND])
    await engine.scale(SECOND, 1)
    await until(lambda: "h-hello-2-hello" in pods(server))
    await engine.scale(FIRST, 1, remove=server.cluster.pods[:1])
    await until(lambda: pods(server).count("h-hello-1-hello") == 1)
    await engine.expect([SECOND])
    await engine.scale(SECOND, 1)
    await until(lambda: pods(server) == ["h-hello-2-hello"])
    await until(lambda: not any("hello-1-" in ref.name for ref in server.cluster.objects))
    await engine.expect([])
    await until(lambda: not deployments(server))


@pytest.mark.parametrize("first", range(STRIDE))
@pytest.mark.parametrize("when", ["before_write", "after_write"])
async def test_it_goes_on_wherever_it_died(when: str, first: int) -> None:
    """At each write of a deployment's life, before it and after it."""
    deaths = 0
    for moment in itertools.count(first, STRIDE):
        server, death = ClusterServer(ClusterInMemory()), Death(moment)
        setattr(server, when, death)
        async with server.running():
            async with engine_on(server) as engine:
                await first_of(live(engine, server), death.has_come.wait())
            assert len(pods(server)) <= 3
            if not death.has_come.is_set():
                break
            death.is_over = True
            async with engine_on(server) as engine:
                await live(engine, server)
        deaths += 1
    assert deaths >= LEAST_WRITES // STRIDE


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Returns when one has ended; the others end with it."""
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Death:
    """Lets some writes through, and then answers none until it is over."""

    def __init__(self, writes: int) -> None:
        self._left = writes
        self.has_come = asyncio.Event()
        self.is_over = False

    def __call__(self) -> bool:
        if self._left == 0:
            self.has_come.set()
        self._left -= 1
        return self.is_over or not self.has_come.is_set()


@pytest.mark.parametrize("fault", [ClusterServer.forget, ClusterServer.cut])
async def test_a_watch_that_ends_is_taken_up_again(
    server: ClusterServer, fault: Callable[[ClusterServer], None]
) -> None:
    async with engine_on(server) as engine:
        await engine.expect([FIRST])
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))
        fault(server)
        await engine.scale(FIRST, 2)
        await until_replicas(engine, states(S.READY, S.READY))


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_what_is_refused_is_tried_again(server: ClusterServer, status: int) -> None:
    server.statuses = [status] * 3
    async with engine_on(server) as engine:
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))
    assert server.statuses == []


async def test_a_version_of_a_canary_comes_and_goes_beside_its_deployment(
    server: ClusterServer,
) -> None:
    version = workload(deployment="hello#next")
    async with engine_on(server) as engine:
        await engine.expect([FIRST, version])
        await engine.scale(FIRST, 1)
        await engine.scale(version, 1)
        await until_replicas(engine, states(S.READY, S.READY))
        assert {replica.key for replica in engine.replicas()} == {FIRST.key, version.key}
        assert all("#" not in ref.name for ref in server.cluster.objects)
        await engine.expect([FIRST])
        await until(lambda: deployments(server) == {"hello"})


async def test_what_is_refused_for_good_waits_with_the_servers_sentence(
    server: ClusterServer,
) -> None:
    async with engine_on(server) as engine:
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))
        server.statuses = [403] * 1000
        await engine.scale(FIRST, 3)
        waits = states(S.PENDING, S.PENDING, S.READY)
        found = await until_replicas(engine, waits)
        assert {each.reason for each in found if each.state is S.PENDING} == {
            "it was told to refuse"
        }
        server.statuses = []
        await until_replicas(engine, states(S.READY, S.READY, S.READY))


async def test_a_namespace_that_is_refused_is_the_reason_of_all_in_it(
    server: ClusterServer,
) -> None:
    async with engine_on(server) as engine:
        server.statuses = [403]
        await engine.scale(FIRST, 2)
        found = await until_replicas(engine, states(S.PENDING, S.PENDING))
        assert {each.reason for each in found} == {"it was told to refuse"}
        await until_replicas(engine, states(S.READY, S.READY))


async def test_copies_of_pull_secrets_stay_when_all_that_is_wanted_was_named(
    server: ClusterServer,
) -> None:
    metadata = {"name": "registry", "namespace": "hotplate", "labels": {}}
    original = {"apiVersion": "v1", "kind": SECRET.name, "metadata": metadata}
    server.cluster.put({**original, "type": "t", "data": {}})
    settings = replace(SETTINGS, pull_secrets=("registry",))
    async with engine_on(server, settings=settings) as engine:
        await engine.expect([FIRST])
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))
        await engine.expect([])
        await until(lambda: not deployments(server))
        await asyncio.sleep(3 * SETTINGS.look_s)
        assert Ref(SECRET.name, "hotplate-t-acme", "registry") in server.cluster.objects


async def test_what_cannot_be_prepared_waits_with_the_reason_and_keeps_what_it_has(
    server: ClusterServer,
) -> None:
    runtime = OneImage()
    async with engine_on(server, runtime) as engine:
        await engine.expect([FIRST])
        await engine.scale(FIRST, 1)
        await until_replicas(engine, states(S.READY))
        runtime.trouble = PrepareFailed("The store does not answer.", retry=True)
        await engine.scale(SECOND, 2)
        found = await until_replicas(engine, states(S.READY, S.PENDING, S.PENDING))
        waiting = [each for each in found if each.state is S.PENDING]
        assert {each.reason for each in waiting} == {"The store does not answer."}
        assert len({each.id for each in waiting}) == 2 and not any(each.uid for each in waiting)
        assert pods(server) == ["h-hello-1-hello"]
        asked = runtime.asked
        await asyncio.sleep(3 * SETTINGS.look_s)
        assert runtime.asked <= asked + 2, "there is a pause before it is asked again"
        runtime.trouble = None
        runtime.changed()
        await until_replicas(engine, states(S.READY, S.READY, S.READY))


async def test_a_bug_in_what_one_is_made_of_is_its_own(server: ClusterServer) -> None:
    class Broken(OneImage):
        async def pod_spec(self, given: Workload, *place: str) -> PodSpec:
            if given.key == SECOND.key:
                raise KeyError("nonsense")
            return pod_spec()

    async with engine_on(server, Broken()) as engine:
        await engine.scale(SECOND, 1)
        await engine.scale(FIRST, 1)
        found = await until_replicas(engine, states(S.READY, S.PENDING))
        (waiting,) = (each for each in found if each.state is S.PENDING)
        assert waiting.reason == "KeyError: 'nonsense'"


async def test_what_is_being_made_starts_and_has_no_pods_before_it_is_there(
    server: ClusterServer,
) -> None:
    runtime = OneImage()
    runtime.trouble = BeingPrepared("Its environment is being built.", log="/logs/one")
    async with engine_on(server, runtime) as engine:
        await engine.expect([FIRST])
        await until(lambda: runtime.asked > 0)
        assert not engine.replicas(), "nobody wants one yet"
        await engine.scale(FIRST, 2)
        found = await until_replicas(engine, states(S.STARTING, S.STARTING))
        assert {each.build_log for each in found} == {"/logs/one"}
        assert {each.reason for each in found} == {"Its environment is being built."}
        assert all(each.created_at and each.phases for each in found)
        assert not pods(server) and not any(
            ref.kind == "Deployment" for ref in server.cluster.objects
        )
        runtime.trouble = None
        runtime.changed()
        await until_replicas(engine, states(S.READY, S.READY))


async def test_what_is_made_for_too_long_counts_as_an_attempt(server: ClusterServer) -> None:
    runtime = OneImage()
    runtime.trouble = BeingPrepared("Its environment is being built.")
    async with engine_on(server, runtime) as engine:
        await engine.scale(replace(FIRST, cold_start_timeout_s=0.3), 1)
        await until_replicas(engine, states(S.STARTING))
        (replica,) = await until_replicas(engine, states(S.BACKOFF))
        assert "cold_start_timeout of 0.3 s (Its environment is being built)" in replica.reason
        assert replica.ready_at is None


async def test_what_cannot_be_made_at_all_has_failed(server: ClusterServer) -> None:
    class Unbuilt(PrepareFailed):
        unbuilt = True

    runtime = OneImage()
    runtime.trouble = Unbuilt("There is no package nonsense.", log=("first", "last"))
    async with engine_on(server, runtime) as engine:
        await engine.scale(FIRST, 1)
        (replica,) = await until_replicas(engine, states(S.FAILED))
        assert (replica.reason, replica.unbuilt) == ("There is no package nonsense.", True)
        assert (replica.log_tail, replica.ready_at) == (("first", "last"), None)
        await engine.scale(FIRST, 0)
        await until_replicas(engine, states())


async def test_a_pod_that_never_gets_to_run_counts_as_an_attempt(server: ClusterServer) -> None:
    server.cluster.status = UNMOUNTED
    async with engine_on(server) as engine:
        await engine.scale(replace(FIRST, cold_start_timeout_s=0.3), 1)
        await until_replicas(engine, states(S.STARTING))
        (replica,) = await until_replicas(engine, states(S.BACKOFF))
        assert "cold_start_timeout of 0.3 s" in replica.reason


async def test_what_a_replica_printed_is_kept_while_it_ends(server: ClusterServer) -> None:
    async with engine_on(server) as engine:
        await engine.scale(FIRST, 1)
        (replica,) = await until_replicas(engine, states(S.READY))
        assert await engine.logs(replica.id, 5) == ["it serves"]
        (pod,) = [ref for ref in server.cluster.objects if ref.kind == "Pod"]
        server.cluster.end(pod)
        await until_replicas(engine, states(S.STOPPING))
        server.cluster.delete(pod)
        server.cluster.follow()
        await until_replicas(engine, states(S.READY))

        async def is_kept() -> bool:
            return await engine.logs(replica.id, 5) == ["it serves"]

        await until(is_kept)
        with pytest.raises(UnknownReplica):
            await engine.logs("nobody", 5)


@pytest.mark.parametrize(
    ("state", "printed"),
    [
        ({"running": {"startedAt": AT}}, ["it has ended", "it serves"]),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, ["it serves"]),
    ],
    ids=["runs again", "waits"],
)
async def test_what_a_container_printed_stands_before_what_the_next_in_its_pod_does(
    server: ClusterServer, state: dict[str, Any], printed: list[str]
) -> None:
    """While none runs, the log of a pod is that of the one that ended last."""
    ended: dict[str, Any] = {"name": "replica", "ready": True, "started": True}
    ended |= {"state": state, "restartCount": 1, "lastState": {"terminated": {}}}
    server.cluster.status = {**SERVING, "containerStatuses": [ended]}
    async with engine_on(server) as engine:
        await engine.scale(FIRST, 1)

        async def said() -> bool:
            names = [replica.id for replica in engine.replicas()]
            return bool(names) and await engine.logs(names[0], 5) == printed

        await until(said)
        (replica,) = engine.replicas()
        assert await engine.logs(replica.id, 1) == ["it serves"]


async def test_what_is_to_end_is_shown_as_ending_before_the_cluster_says_so(
    server: ClusterServer,
) -> None:
    """It was drained: whoever wants one more meanwhile gets another, and it is sent nothing."""
    async with engine_on(server) as engine:
        await engine.scale(FIRST, 2)
        first, second = await until_replicas(engine, states(S.READY, S.READY))
        await engine.scale(FIRST, 1, remove=[first.id])
        shown = {replica.id: replica.state for replica in engine.replicas()}
        assert shown == {first.id: S.STOPPING, second.id: S.READY}
        (left,) = await until_replicas(engine, states(S.READY))
        assert left.id == second.id
