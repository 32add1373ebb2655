"""A pod's volume, from kubelet's call to the pod's reads, with real mounts and real ends of agents.

Each agent is a process in a mount namespace of its own; pods' programs are another user's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.request import Request, urlopen

import pytest

from hotplate.cache.volumes.ticket import key_of, signed
from tests.support.cache.fakes import AgentProcess, blob_of, random_bytes
from tests.support.cache.pod_bench import KEY, TOKEN, Pod, PodBench, pod_bench

WEIGHTS = random_bytes(100_000, 1)
BLOB = blob_of(WEIGHTS)
LOOK = """
import os
volume, results = sys.argv[1], {}
for above, folders, names in os.walk(volume):
    for name in folders + names:
        path = os.path.join(above, name)
        place = os.path.relpath(path, volume)
        if os.path.islink(path):
            results[place] = "link to " + os.readlink(path)
        elif name in names and not place.startswith("parts") and name != "agent.sock":
            try:
                results[place] = open(path, "rb").read(40).decode("latin-1")
            except OSError as error:
                results[place] = type(error).__name__
print(json.dumps(results))
"""
READ = """
from hotplate.cache.reader import open_file
socket, *paths = sys.argv[1:]
results = []
for path in paths:
    try:
        with open_file(socket, path) as file:
            print("open", flush=True)
            file.wait_all()
            results.append(bytes(file.view[:8]).hex())
    except OSError as error:
        results.append(str(error))
print(json.dumps(results))
"""
MODEL = "/hotplate/models/bert/v1/model.safetensors"


@pytest.fixture
def bench() -> Iterator[PodBench]:
    with pod_bench() as made:
        yield made


def refusals(agent: AgentProcess) -> list[str]:
    asked = Request(f"{agent.url}/v1/troubles", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked) as answer:
        found: list[str] = json.load(answer)["refusals"]
    return found


def door_of(pod: Pod) -> str:
    return f"{pod.target}/agent.sock"


def refusal(bench: PodBench, pod: Pod, ticket: str, **more: str) -> tuple[str, str]:
    """The code and the sentence with which a volume is refused."""
    import grpc

    with pytest.raises(grpc.RpcError) as refused:
        bench.publish(pod, ticket, **more)
    return refused.value.code().name, refused.value.details()


def test_a_pod_sees_its_files_weights_come_behind_and_nothing_can_be_written(
    bench: PodBench,
) -> None:
    shown, pod = bench.revision(WEIGHTS), bench.pod("pod")
    bench.origin.hold(BLOB, 0)
    with bench.agent():
        bench.publish(pod, signed(shown.ticket, KEY))
        expected = {
            "bento/bento.yaml": "service: hello",
            "bento/src/hello.py": "import hello",
            "env/bin/python.sh": "#!/bin/sh",
            "env/lib/hello.py": "x = 1",
            "models/bert/v1/config.json": "{}",
            "job.json": '{"absent": []}\n',
        }
        seen = bench.in_pod(LOOK, str(pod.target))
        assert seen == {**expected, "models/bert/v1/model.safetensors": "PermissionError"}
        below = ("bento", "env", "models/bert/v1", "parts")
        places = [str(pod.target), *(f"{pod.target}/{each}" for each in below)]
        assert bench.mounts() == [f"{place} ro,nosuid,nodev,relatime" for place in places]
        for place in places:
            assert "Read-only file system" in bench.on_node("touch", f"{place}/new")
        reader = bench.on_node("cat", f"{pod.target}/parts/hotplate/cache/reader.py")
        assert "class RemoteFile" in reader

        door = f"{pod.target}/agent.sock"
        reading = bench.program_in_pod(READ, door, MODEL)
        assert reading.stdout is not None and reading.stdout.readline() == "open\n"
        bench.origin.release()
        assert json.loads(reading.communicate()[0]) == [WEIGHTS[:8].hex()]


def test_a_door_leads_to_the_pods_own_files_only(bench: PodBench) -> None:
    ours, theirs = bench.revision(WEIGHTS), bench.revision(WEIGHTS[::-1])
    pod, other = bench.pod("pod"), bench.pod("other")
    with bench.agent():
        bench.publish(pod, signed(ours.ticket, KEY))
        bench.publish(other, signed(theirs.ticket, KEY))
        asked = [
            "/hotplate/models/bert/v2/model.safetensors",
            "/hotplate/models/bert/v1/../v1/model.safetensors",
            f"{bench.data}/trees/{theirs.model.digest}/model.safetensors",
            f"/hotplate/models/bert/v1/../../{theirs.model.digest}/model.safetensors",
            "/etc/shadow",
        ]
        program = READ.replace("open_file(socket, path)", "_open(socket, {'open': path})")
        program = program.replace("import open_file", "import _open")
        said = bench.in_pod(program, f"{pod.target}/agent.sock", *asked)
        assert all("is no file of a tree" in each for each in said), said


def test_a_ticket_that_is_forged_or_copied_is_refused_and_the_refusal_is_told(
    bench: PodBench,
) -> None:
    shown, pod = bench.revision(WEIGHTS), bench.pod("pod")
    good = signed(shown.ticket, KEY)
    thief = bench.pod("thief", namespace="hotplate-t-evil")
    namesake = bench.pod("namesake", account="default")
    with bench.agent() as agent:
        denied = "PERMISSION_DENIED"
        forged = signed(shown.ticket, key_of("guessed"))
        assert refusal(bench, pod, forged)[0] == denied
        assert refusal(bench, pod, "")[0] == denied
        assert refusal(bench, namesake, good)[0] == denied
        code, sentence = refusal(bench, thief, good)
        assert code == denied
        assert "it was copied from another one" in sentence
        assert "acme" not in sentence
        told = refusals(agent)
        assert len(told) == 4
        assert told[-1] == f"pod hotplate-t-evil/thief: {sentence}"
        lasting = {"csi.storage.k8s.io/ephemeral": "false"}
        assert refusal(bench, pod, good, **lasting)[0] == "INVALID_ARGUMENT"
        assert bench.mounts() == []
        assert list((bench.data / "volumes").iterdir()) == []
        bench.publish(pod, good)


def test_volumes_outlive_agents_that_are_killed_and_all_calls_may_be_repeated(
    bench: PodBench,
) -> None:
    shown, pod = bench.revision(WEIGHTS), bench.pod("pod")
    ticket = signed(shown.ticket, KEY)
    door = f"{pod.target}/agent.sock"
    with bench.agent() as agent:
        bench.publish(pod, ticket)
        assert bench.in_pod(READ.replace('print("open", flush=True)', ""), door, MODEL)
        before = bench.mounts()
        agent.kill()
        assert bench.mounts() == before
        seen = bench.in_pod(LOOK, str(pod.target))
        assert seen["models/bert/v1/config.json"] == "{}"
    read = READ.replace('print("open", flush=True)', "")
    assert "Connection refused" in bench.in_pod(read, door, MODEL)[0]
    with bench.agent():
        assert bench.in_pod(read, door, MODEL) == [WEIGHTS[:8].hex()]
        bench.publish(pod, ticket)
        assert bench.mounts() == before
        code, _ = refusal(bench, pod, signed(replace(shown.ticket, revision=2), KEY))
        assert code == "INVALID_ARGUMENT"
        bench.unpublish(pod)
        assert bench.mounts() == []
        assert not pod.target.exists()
        assert list((bench.data / "volumes").iterdir()) == []
        bench.unpublish(pod)
        bench.publish(pod, ticket)
        assert bench.mounts() == before


def test_a_slow_origin_makes_the_call_end_and_the_next_one_join(bench: PodBench) -> None:
    shown, pod = bench.revision(WEIGHTS), bench.pod("pod")
    ticket = signed(shown.ticket, KEY)
    (held,) = [one.blob for one in shown.environment.entries if one.path == "lib/hello.py"]
    assert held is not None
    bench.origin.hold(held, 0)
    with bench.agent(publish_s=0.2):
        code, sentence = refusal(bench, pod, ticket)
        assert code == "DEADLINE_EXCEEDED"
        assert "of the volume's files are on this node; they go on coming" in sentence
        assert refusal(bench, pod, ticket)[0] == "DEADLINE_EXCEEDED"
        assert bench.mounts() == []
        bench.unpublish(pod)  # the pod was deleted meanwhile
        assert list((bench.data / "volumes").iterdir()) == []
    bench.origin.release()
    bench.origin.reads.clear()
    with bench.agent(), ThreadPoolExecutor() as threads:
        calls = [threads.submit(bench.publish, pod, ticket) for _ in range(4)]
        for each in calls:
            each.result()
        assert len(bench.mounts()) == 5
        assert [read for read in bench.origin.reads if read[0] == held.digest] == [(held.digest, 0)]


def test_a_file_that_a_pod_sees_whole_stays_so_when_the_next_agent_verifies_it(
    bench: PodBench,
) -> None:
    """It cannot yet: its own file is damaged, and the origin does not answer."""
    shown, pods = bench.revision(WEIGHTS), [bench.pod(name) for name in ("old", "new", "newer")]
    ticket = signed(shown.ticket, KEY)
    place = "models/bert/v1/model.safetensors"
    with bench.agent():
        bench.publish(pods[0], ticket)
        read = READ.replace("file.wait_all()", "file.wait_linked()")
        bench.in_pod(read.replace('print("open", flush=True)', ""), door_of(pods[0]), MODEL)
    bench.origin.hold(BLOB, 0)
    with (bench.data / "disk" / BLOB.digest).open("r+b") as file:
        file.write(b"damaged!")
    with bench.agent():
        bench.publish(pods[1], ticket)
        bench.origin.wait_for_read(BLOB, 0)
        assert bench.in_pod(LOOK, str(pods[0].target))[place].startswith("damaged!")
        bench.unpublish(pods[1])
    # On a node that was started anew nobody has seen it.
    bench.on_node("umount", "-l", str(pods[0].target))
    with bench.agent():
        assert list((bench.data / "volumes").iterdir()) == []
        bench.publish(pods[2], ticket)
        assert bench.in_pod(LOOK, str(pods[2].target))[place] == "PermissionError"


def test_what_pods_leave_that_have_gone_is_swept_by_the_next_agent(bench: PodBench) -> None:
    shown, pod, stays = bench.revision(WEIGHTS), bench.pod("pod"), bench.pod("stays")
    with bench.agent():
        for each in (pod, stays):
            bench.publish(each, signed(shown.ticket, KEY))
    bench.on_node("umount", "-l", str(pod.target))
    bench.on_node("rm", "-r", str(bench.kubelet / "pods" / "pod"))
    with bench.agent():
        bench.publish(stays, signed(shown.ticket, KEY))
        left = {path.name for path in (bench.data / "volumes").iterdir()}
        assert left == {"csi-stays", "csi-stays.json"}


def test_a_tree_that_a_pod_sees_is_not_removed(bench: PodBench) -> None:
    shown, pod = bench.revision(WEIGHTS), bench.pod("pod")
    with bench.agent() as agent:
        bench.publish(pod, signed(shown.ticket, KEY))

        def deleted() -> bool:
            asked = Request(
                f"{agent.url}/v1/trees/{shown.environment.digest}",
                headers={"Authorization": f"Bearer {TOKEN}"},
                method="DELETE",
            )
            with urlopen(asked) as answer:
                return bool(json.load(answer)["deleted"])

        assert not deleted()
        bench.unpublish(pod)
        assert deleted()


def test_a_full_disk_gives_up_what_no_pod_sees_and_nothing_else(bench: PodBench) -> None:
    old, seen, new = (bench.revision(random_bytes(100_000, each)) for each in (2, 3, 4))
    pods = [bench.pod(name) for name in ("old", "seen", "new", "late")]
    late = bench.revision(random_bytes(250_000, 5))
    with bench.agent(disk_limit_bytes=250_000, given_up_s=0.0):
        for pod, shown in zip(pods, (old, seen, new), strict=False):
            if pod is pods[2]:
                bench.unpublish(pods[0])
            bench.publish(pod, signed(shown.ticket, KEY))
            read = READ.replace("file.wait_all()", "file.wait_linked()")
            bench.in_pod(read.replace('print("open", flush=True)', ""), door_of(pod), MODEL)
        trees = {path.name for path in (bench.data / "trees").iterdir()}
        assert old.model.digest not in trees
        assert {seen.model.digest, new.model.digest} <= trees
        for pod in pods[1:3]:
            look = bench.in_pod(LOOK, str(pod.target))
            assert look["models/bert/v1/model.safetensors"] != "PermissionError"
        bench.publish(pods[3], signed(late.ticket, KEY))  # it is lent from memory
        assert {seen.model.digest, new.model.digest} <= {
            path.name for path in (bench.data / "trees").iterdir()
        }


def test_kubelet_finds_the_plugin_and_its_node(bench: PodBench) -> None:
    import grpc

    from hotplate.cache.volumes.messages import REGISTRATION

    with bench.agent() as agent:
        place = f"unix:{bench.kubelet}/plugins_registry/agent.hotplate.dev-reg.sock"
        with grpc.insecure_channel(place) as channel:
            ask = channel.unary_unary(
                "/pluginregistration.Registration/GetInfo",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=REGISTRATION["PluginInfo"].FromString,
            )
            found = ask(REGISTRATION["InfoRequest"](), timeout=10)
        assert (found.type, found.name) == ("CSIPlugin", "agent.hotplate.dev")
        assert list(found.supported_versions) == ["1.0.0"]
        assert found.endpoint == f"{bench.kubelet}/plugins/agent.hotplate.dev/csi.sock"
        assert bench.ask("csi.v1.Node/NodeGetInfo").node_id == "node1"
        assert bench.ask("csi.v1.Identity/GetPluginInfo").name == "agent.hotplate.dev"
        for method in ("Identity/Probe", "Identity/GetPluginCapabilities"):
            bench.ask(f"csi.v1.{method}")
        bench.ask("csi.v1.Node/NodeGetCapabilities")
        assert agent.terminate() == 0
    assert not os.path.exists(f"{bench.kubelet}/plugins_registry/agent.hotplate.dev-reg.sock")
