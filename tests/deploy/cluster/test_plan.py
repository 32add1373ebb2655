"""What is written: all that is wanted, nothing twice, and nothing of what nobody has named yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import KINDS, Ref
from hotplate.deploy.cluster.plan import Apply, Bear, Delete, Prefer, Release, SetReplicas, matches
from tests.support.deploy.cluster import ClusterInMemory, pod_spec, wanted, workload

NAMESPACE = "hotplate-t-acme"
BASE = Ref("Deployment", NAMESPACE, "h-hello-1-hello")
ANCHOR = Ref("ConfigMap", NAMESPACE, "hello")


@pytest.fixture
def cluster() -> ClusterInMemory:
    return ClusterInMemory()


def test_what_sleeps_has_all_its_objects_and_no_pod(cluster: ClusterInMemory) -> None:
    cluster.settle((workload(), 0))
    found = {(ref.kind, ref.name) for ref in cluster.objects}
    job = next(
        name for kind, name in found if name.startswith("h-hello-1-hello-") and kind == "ConfigMap"
    )
    assert found == {
        ("ConfigMap", "hello"),
        ("ConfigMap", job),
        ("Secret", "h-hello-1-hello-env"),
        *(
            (kind, "h-hello-1-hello")
            for kind in ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget")
        ),
    }
    assert cluster.objects[BASE]["spec"]["replicas"] == 0
    assert all(
        each["metadata"]["labels"][names.ORGANIZATION] == "acme"
        and each["metadata"]["labels"][names.DEPLOYMENT] == "hello"
        for each in cluster.objects.values()
    )


def test_a_replica_is_told_its_uid(cluster: ClusterInMemory) -> None:
    cluster.settle((workload(), 1))
    (container,) = cluster.objects[BASE]["spec"]["template"]["spec"]["containers"]
    told = {
        "name": "HOTPLATE_REPLICA_UID",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
    }
    assert told in container["env"]


def test_a_deployment_is_born_with_no_replica_and_never_applied_with_a_number(
    cluster: ClusterInMemory,
) -> None:
    made = cluster.settle((workload(), 2))
    (born,) = [write for write in made if isinstance(write, Bear)]
    assert "replicas" not in born.manifest["spec"]
    assert len(cluster.pods) == 2


def test_a_second_look_writes_nothing(cluster: ClusterInMemory) -> None:
    several = [(workload(f"d-{number}"), number % 3) for number in range(50)]
    cluster.settle(*several)
    assert cluster.look(*several) == []


@pytest.mark.parametrize("kind", ["Deployment", "Service", "ServiceAccount", "Secret", "ConfigMap"])
def test_what_somebody_deletes_is_made_again(cluster: ClusterInMemory, kind: str) -> None:
    cluster.settle((workload(), 1))
    before = set(cluster.objects)
    own = [ref for ref in before if ref.kind == kind and ref != ANCHOR]
    for ref in own:
        cluster.delete(ref)
    cluster.settle((workload(), 1))
    assert {ref for ref in before if ref.kind != "Pod"} <= set(cluster.objects)
    assert len(cluster.pods) == 1


def test_what_somebody_changes_is_put_right(cluster: ClusterInMemory) -> None:
    cluster.settle((workload(), 1))
    cluster.objects[BASE]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    cluster.objects[BASE]["metadata"]["labels"]["their-own"] = "stays"
    (write,) = cluster.settle((workload(), 1))
    assert isinstance(write, Apply) and write.reason == "somebody has changed it"
    pod = cluster.objects[BASE]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "runtime:1"


def test_an_anchor_that_is_deleted_drains_and_comes_back(cluster: ClusterInMemory) -> None:
    cluster.settle((workload(), 1))
    uid = cluster.objects[ANCHOR]["metadata"]["uid"]
    (pod,) = [ref for ref in cluster.objects if ref.kind == "Pod"]
    cluster.delete(ANCHOR)
    (scaled,) = cluster.look((workload(), 1))
    assert isinstance(scaled, SetReplicas) and scaled.count == 0, "first of all its pods end"
    cluster.make(replace(scaled))
    assert pod not in cluster.objects
    cluster.settle((workload(), 1))
    assert cluster.objects[ANCHOR]["metadata"]["uid"] != uid
    assert len(cluster.pods) == 1


def test_an_anchor_stays_while_one_of_its_pods_ends(cluster: ClusterInMemory) -> None:
    cluster.settle((workload(), 1))
    (pod,) = [ref for ref in cluster.objects if ref.kind == "Pod"]
    cluster.end(pod)
    cluster.objects[BASE]["spec"]["replicas"] = 0
    for write in cluster.look():
        cluster.make(write)
    assert not any(isinstance(write, Release) for write in cluster.look())
    del cluster.objects[pod]
    cluster.settle()
    assert cluster.objects == {}


def test_nothing_goes_until_all_that_is_wanted_has_been_named(cluster: ClusterInMemory) -> None:
    kept, other = workload("kept"), workload("other")
    cluster.settle((kept, 1), (other, 1))
    assert cluster.look((kept, 1), all_named=False) == []
    cluster.settle((kept, 1))
    assert {each["metadata"]["labels"][names.DEPLOYMENT] for each in cluster.objects.values()} == {
        "kept"
    }


def test_an_old_revision_goes_alone(cluster: ClusterInMemory) -> None:
    first, second = workload(revision=1), workload(revision=2)
    cluster.settle((first, 1), (second, 1))
    uid = cluster.objects[ANCHOR]["metadata"]["uid"]
    made = cluster.settle((second, 1))
    deleted = {write.ref for write in made if isinstance(write, Delete)}
    assert BASE in deleted and len(deleted) == 6
    assert cluster.objects[ANCHOR]["metadata"]["uid"] == uid
    assert [name.rpartition("-")[0] for name in cluster.pods] == ["h-hello-2-hello"]


def test_the_drained_go_first_and_as_many_as_wanted_stay(cluster: ClusterInMemory) -> None:
    cluster.settle((workload(), 3))
    drained = cluster.pods[1]
    writes = cluster.look_at([wanted(workload(), 2, [drained])])
    assert [type(write) for write in writes] == [Prefer, SetReplicas]
    for write in writes:
        cluster.make(write)
    assert drained not in cluster.pods and len(cluster.pods) == 2


def test_a_drained_one_among_as_many_as_wanted_is_deleted_so_that_another_comes(
    cluster: ClusterInMemory,
) -> None:
    cluster.settle((workload(), 2))
    drained = cluster.pods[0]
    (write,) = cluster.look_at([wanted(workload(), 2, [drained])])
    assert isinstance(write, Delete) and write.ref.name == drained


def test_a_workload_of_which_nothing_can_be_said_keeps_its_objects_and_is_scaled(
    cluster: ClusterInMemory,
) -> None:
    cluster.settle((workload(), 2))
    unsaid = replace(wanted(workload(), 1), objects=())
    (write,) = cluster.look_at([unsaid])
    assert isinstance(write, SetReplicas) and write.count == 1


def test_another_job_has_another_name_and_the_old_one_goes_with_its_pods(
    cluster: ClusterInMemory,
) -> None:
    cluster.settle((workload(), 1))
    before = {ref for ref in cluster.objects if ref.kind == "ConfigMap"}
    other = wanted(workload(), 1, pod=replace(pod_spec(), job={"service": "Other"}))
    for write in cluster.look_at([other]):
        cluster.make(write)
    assert before < {ref for ref in cluster.objects if ref.kind == "ConfigMap"}
    assert cluster.look_at([other]) == [], "a pod still mounts the old one"
    (pod,) = [ref for ref in cluster.objects if ref.kind == "Pod"]
    del cluster.objects[pod]
    (gone,) = cluster.look_at([other])
    assert gone.ref in before and isinstance(gone, Delete)


def test_secrets_stand_in_the_secret_alone(cluster: ClusterInMemory) -> None:
    pod = pod_spec(env={"KEY": "cGFzc3dvcmQ"}, files={"a/b": "cGFzc3dvcmQ"})
    for write in cluster.look_at([wanted(workload(), 0)]):
        cluster.make(write)
    for write in cluster.look_at([wanted(workload(), 0, pod=pod)]):
        cluster.make(write)
    kinds = {ref.kind for ref, each in cluster.objects.items() if "cGFzc3dvcmQ" in str(each)}
    assert kinds == set(), "it is not even in clear there"
    secret = cluster.objects[Ref("Secret", NAMESPACE, "h-hello-1-hello-env")]
    assert set(secret["data"]) == {"env.json", "files.json"}


@pytest.mark.parametrize(
    ("said", "seen", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, True),
        ({"a": False}, {}, True),
        ({"a": True}, {}, False),
        ({"a": 1}, None, False),
    ],
)
def test_what_there_is_may_say_more(said: object, seen: object, expected: bool) -> None:
    assert matches(said, seen) is expected


def test_paths_are_the_api_servers() -> None:
    assert BASE.path == f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/h-hello-1-hello"
    assert Ref("Namespace", "", "a/b").path == "/api/v1/namespaces/a%2Fb"
    assert set(KINDS) >= {"Pod", "Event", "Node"}
