"""What a pod has built is taken over by a real agent and published, whatever ends meanwhile.

The environment lies where kubelet has a pod's `emptyDir`, and belongs to the pods' user.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import SMALL_BYTES
from hotplate.cache.volumes.ticket import Ticket, Use, signed
from tests.support.cache.fakes import AgentProcess, random_bytes
from tests.support.cache.pod_bench import KEY, TOKEN, USER, Pod, PodBench, pod_bench
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port

NOTE = f"environments/{'e' * 64}"
ABOUT = {"interpreter": "/usr/bin/python3.11", "organization": "acme", "bentos": ["hello"]}
LARGE = random_bytes(SMALL_BYTES + 1, 1)
FILES = {
    "bin/tool": b"#!/bin/sh\n",
    "lib/hello.py": b"x = 1\n",
    "lib/empty.py": b"",
    "lib/large.so": LARGE,
}
ASK = """
from hotplate.serving.replica.inside.building import program
try:
    print(json.dumps(program.publish(sys.argv[1])))
except program.BuildEnded as ended:
    failure = ended.failure
    print(json.dumps([failure.sentence, failure.retry, failure.no_room]))
"""
REFUSED = "The environment cannot be used as it was built: "


@pytest.fixture
def bench() -> Iterator[PodBench]:
    with pod_bench() as made:
        made.store.mkdir(mode=0o700)
        yield made


def store(bench: PodBench) -> BlobStore:
    return BlobStore(origin(bench))


def origin(bench: PodBench) -> str:
    return f"file://{bench.store}"


def ticket(bench: PodBench) -> Ticket:
    shown = bench.revision(b"weights").ticket
    return replace(
        shown, use=Use.BUILD, environment="", models=(), note=NOTE, about=ABOUT, revision=0
    )


def built(bench: PodBench, name: str = "build") -> Pod:
    """A pod that has built its environment."""
    pod = bench.pod(name)
    root = result(bench, pod)
    for path, content in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / "bin/python").symlink_to("/usr/bin/python3.11")
    (root / "lib64").symlink_to("lib")
    subprocess.run(["chown", "-hR", f"{USER}:{USER}", f"{root}/bin", f"{root}/lib"], check=True)
    os.lchown(root / "lib64", USER, USER)
    return pod


def result(bench: PodBench, pod: Pod) -> Path:
    root = bench.kubelet / "pods" / pod.name / "volumes" / "kubernetes.io~empty-dir" / "env"
    root.mkdir(parents=True, exist_ok=True)
    return root


def ask(bench: PodBench, pod: Pod) -> Any:
    return bench.in_pod(ASK, f"{pod.target}/agent.sock")


def files_of(manifest: Manifest, blobs: BlobStore) -> dict[str, bytes]:
    found = {}
    for entry in manifest.entries:
        if entry.blob is not None:
            offset, length = entry.span
            content = b"".join(blobs.chunks(entry.blob))
            found[entry.path] = content[offset : offset + length]
    return found


def figure(agent: AgentProcess, name: str) -> float:
    asked = Request(f"{agent.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_what_a_pod_has_built_is_published_and_a_pod_of_its_node_has_it_from_there(
    bench: PodBench,
) -> None:
    build, pod = built(bench), bench.pod("pod")
    with bench.agent(origin=origin(bench)) as agent:
        bench.publish(build, signed(ticket(bench), KEY))
        digest = ask(bench, build)
        blobs = store(bench)
        assert blobs.get_note(NOTE) == {**ABOUT, "manifest": digest}
        manifest = blobs.get_manifest(digest)
        assert files_of(manifest, blobs) == FILES
        links = {one.path: one.link for one in manifest.entries if one.link is not None}
        assert links == {"bin/python": "/usr/bin/python3.11", "lib64": "lib"}
        assert not list(bench.data.glob("disk/.partial*"))
        assert not list((bench.store / "holds").iterdir())

        before = figure(agent, "hotplate_cache_origin_bytes_total")
        shown = replace(bench.revision(b"weights").ticket, environment=digest, models=())
        bench.publish(pod, signed(shown, KEY))
        assert (pod_sees(bench, pod, "env/lib/hello.py")) == "x = 1\n"
        assert figure(agent, "hotplate_cache_origin_bytes_total") == before


def pod_sees(bench: PodBench, pod: Pod, path: str) -> str:
    return bench.on_node("cat", f"{pod.target}/{path}")


def test_another_node_has_it_from_this_one_and_nothing_from_the_origin(bench: PodBench) -> None:
    build = built(bench)
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        bench.agent(origin=origin(bench), port=port) as one,
        AgentProcess(
            bench.folder / "other",
            origin(bench),
            token=TOKEN,
            peers=[address],
            arena_limit_bytes=1 << 28,
        ) as other,
    ):
        assert not other.refusal and not one.refusal
        bench.publish(build, signed(ticket(bench), KEY))
        digest = ask(bench, build)
        asked = Request(
            f"{other.url}/v1/trees/{digest}?wait=all",
            headers={"Authorization": f"Bearer {TOKEN}"},
            method="PUT",
        )
        with urlopen(asked, timeout=PATIENCE_S) as answer:
            root = Path(json.load(answer)["root"])
        assert (root / "lib/large.so").read_bytes() == LARGE
        assert figure(other, "hotplate_cache_origin_bytes_total") == 0
        assert figure(other, "hotplate_cache_peer_bytes_total") >= len(LARGE)


def test_what_is_asked_again_is_answered_again_and_the_first_of_two_builds_counts(
    bench: PodBench,
) -> None:
    first, second = built(bench, "first"), built(bench, "second")
    (result(bench, second) / "lib" / "hello.py").write_bytes(b"x = 2\n")
    with bench.agent(origin=origin(bench)):
        for pod in (first, second):
            bench.publish(pod, signed(ticket(bench), KEY))
        digest = ask(bench, first)
        assert ask(bench, first) == ask(bench, second) == digest
        (bench.store / "manifests" / f"{digest}.json").unlink()  # a sweep has removed it
        again = ask(bench, second)
        assert again != digest
        assert store(bench).get_note(NOTE) == {**ABOUT, "manifest": again}


def test_only_a_build_s_door_publishes(bench: PodBench) -> None:
    pod = built(bench, "pod")
    with bench.agent(origin=origin(bench)):
        bench.publish(pod, signed(bench.revision(b"weights").ticket, KEY))
        sentence, retry, _ = ask(bench, pod)
        assert "not a request of this socket" in sentence and not retry
    assert store(bench).get_note(NOTE) is None


def test_an_agent_that_is_killed_meanwhile_leaves_nothing_half_and_the_next_does_it_again(
    bench: PodBench,
) -> None:
    build, holds = built(bench), store(bench).holds
    holds.announce("sweeper", datetime.now(UTC))  # so it waits before it stores anything
    with bench.agent(origin=origin(bench)) as agent:
        bench.publish(build, signed(ticket(bench), KEY))
        asking = bench.program_in_pod(ASK, f"{build.target}/agent.sock")
        asyncio.run(until((bench.store / "holds").is_dir))
        agent.kill()
    holds.withdraw("sweeper")
    assert store(bench).get_note(NOTE) is None
    with bench.agent(origin=origin(bench)):
        said, _ = asking.communicate(timeout=PATIENCE_S)
        digest = json.loads(said)
        assert store(bench).get_note(NOTE) == {**ABOUT, "manifest": digest}
        assert files_of(store(bench).get_manifest(digest), store(bench)) == FILES
        bench.unpublish(build)
    assert not list(bench.data.glob("disk/.partial*"))


def test_blobs_of_a_build_that_never_ended_go_with_the_next_agent(bench: PodBench) -> None:
    build, holds = built(bench), store(bench).holds
    holds.announce("sweeper", datetime.now(UTC))
    with bench.agent(origin=origin(bench)) as agent:
        bench.publish(build, signed(ticket(bench), KEY))
        before = set((bench.data / "disk").iterdir())
        with bench.program_in_pod(ASK, f"{build.target}/agent.sock") as asking:
            asyncio.run(until((bench.store / "holds").is_dir))
            assert set((bench.data / "disk").iterdir()) > before
            agent.kill()
            asking.kill()
    with bench.agent(origin=origin(bench)):
        assert set((bench.data / "disk").iterdir()) == before


def test_a_pod_that_goes_meanwhile_is_not_waited_for(bench: PodBench) -> None:
    build, holds = built(bench), store(bench).holds
    holds.announce("sweeper", datetime.now(UTC))
    with bench.agent(origin=origin(bench)):
        bench.publish(build, signed(ticket(bench), KEY))
        with bench.program_in_pod(ASK, f"{build.target}/agent.sock") as asking:
            asyncio.run(until((bench.store / "holds").is_dir))
            holds.withdraw("sweeper")
            bench.unpublish(build)
            asking.kill()
        assert list((bench.data / "volumes").iterdir()) == []


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda root: (root / "lib/x").symlink_to("/etc/shadow"), "the link 'lib/x' leads to"),
        (lambda root: os.mkfifo(root / "lib/x"), "'lib/x' is a pipe"),
        (lambda root: (root / "bin/python").unlink(), "has put another bin/python"),
        (lambda root: os.truncate(root / "lib/large.so", 1 << 40), "more than the 100 MiB"),
    ],
)
def test_a_build_is_told_in_one_sentence_why_its_result_is_refused(
    bench: PodBench, harm: Callable[[Path], None], reason: str
) -> None:
    build = built(bench)
    harm(result(bench, build))
    subprocess.run(["chown", "-hR", f"{USER}", f"{result(bench, build)}/lib"], check=True)
    with bench.agent(origin=origin(bench), build_limits={"size_bytes": 100 << 20}):
        bench.publish(build, signed(ticket(bench), KEY))
        sentence, retry, _ = ask(bench, build)
    assert sentence.startswith(REFUSED) and reason in sentence and not retry
    assert store(bench).get_note(NOTE) is None


def test_a_pod_without_a_folder_for_its_environment_is_told_so(bench: PodBench) -> None:
    pod = bench.pod("pod")
    with bench.agent(origin=origin(bench)):
        bench.publish(pod, signed(ticket(bench), KEY))
        assert "the pod has no emptyDir of the name 'env'" in ask(bench, pod)[0]


def test_a_full_disk_and_an_origin_that_is_down_are_for_another_try(bench: PodBench) -> None:
    build = built(bench)
    with bench.agent(origin=origin(bench), disk_limit_bytes=1 << 20):
        bench.publish(build, signed(ticket(bench), KEY))
        sentence, retry, no_room = ask(bench, build)
        assert "of its limit of 1 MiB" in sentence and retry and no_room
    with bench.agent(origin=origin(bench)):
        aside = bench.store.with_name("aside")
        bench.store.rename(aside)
        bench.store.touch()
        sentence, retry, no_room = ask(bench, build)
        assert "cannot be used (Not a directory)" in sentence and retry and not no_room
        bench.store.unlink()
        aside.rename(bench.store)
        assert len(ask(bench, build)) == 64
