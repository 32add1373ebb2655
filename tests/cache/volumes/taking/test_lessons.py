"""What replicas of a node have learnt comes to its next pods, from real agents, whatever it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.taking.lesson import note_of
from hotplate.cache.volumes.ticket import Ticket, Use, signed
from tests.support.cache.fakes import random_bytes
from tests.support.cache.pod_bench import KEY, USER, Pod, PodBench, pod_bench

ASK = """
import socket
with socket.socket(socket.AF_UNIX) as agent:
    agent.connect(sys.argv[1])
    agent.sendall(b'{"keep": true}\\n')
    print(agent.makefile().readline())
"""
KERNEL = random_bytes(100_000, 1)
MODULES = ["bentoml", "torch", "torch.nn"]


@pytest.fixture
def bench() -> Iterator[PodBench]:
    with pod_bench() as made:
        made.store.mkdir(mode=0o700)
        yield made


def ticket(bench: PodBench, **about: Any) -> Ticket:
    return replace(bench.revision(b"weights").ticket, models=(), **about)


def origin(bench: PodBench) -> str:
    return f"file://{bench.store}"


def own(bench: PodBench, pod: Pod) -> Path:
    """The replica's own folder."""
    root = bench.kubelet / "pods" / pod.name / "volumes" / "kubernetes.io~empty-dir" / "scratch"
    root.mkdir(parents=True, exist_ok=True)
    return root


def learn(bench: PodBench, pod: Pod, modules: Any = MODULES, kernel: bytes = KERNEL) -> None:
    root = own(bench, pod)
    (root / "compiled" / "triton" / "abc").mkdir(parents=True, exist_ok=True)
    (root / "compiled" / "triton" / "abc" / "kernel.so").write_bytes(kernel)
    (root / "modules.json").write_text(json.dumps(modules))
    subprocess.run(["chown", "-hR", f"{USER}:{USER}", root], check=True)


def ask(bench: PodBench, pod: Pod) -> Any:
    return bench.in_pod(ASK, f"{pod.target}/agent.sock")


def note(bench: PodBench, of: Ticket) -> dict[str, Any] | None:
    return BlobStore(origin(bench)).get_note(note_of(of, ""))


def shown(pod: Pod, bench: PodBench, path: str) -> str:
    return bench.on_node("sh", "-c", f"cat {pod.target}/{path} | sha256sum | head -c 64")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_next_pod_has_what_a_replica_has_learnt_and_others_have_not(bench: PodBench) -> None:
    pods = {name: bench.pod(name) for name in ("first", "second", "other", "third")}
    given, other = ticket(bench), ticket(bench, organization="evil")
    with bench.agent(origin=origin(bench)):
        bench.publish(pods["first"], signed(given, KEY))
        assert not (pods["first"].target / "compiled").exists()
        learn(bench, pods["first"])
        assert ask(bench, pods["first"]) == {"kept": True}
        said = note(bench, given)
        assert said is not None
        assert (said["organization"], said["bentos"]) == ("acme", [given.bento])
        assert said["modules"] == MODULES

        bench.publish(pods["second"], signed(given, KEY))
        place = "compiled/triton/abc/kernel.so"
        assert shown(pods["second"], bench, place) == sha(KERNEL)
        listed = bench.on_node("cat", f"{pods['second'].target}/modules.json")
        assert json.loads(listed) == MODULES
        assert "Read-only" in bench.on_node("touch", f"{pods['second'].target}/compiled/x")
        bench.publish(pods["other"], signed(other, KEY))
        assert "compiled" not in bench.on_node("ls", str(pods["other"].target))
    with bench.agent(origin=origin(bench)):
        assert shown(pods["second"], bench, place) == sha(KERNEL)
        learn(bench, pods["second"], kernel=KERNEL[::-1])
        assert ask(bench, pods["second"]) == {"kept": True}
        bench.publish(pods["third"], signed(given, KEY))
        assert shown(pods["third"], bench, place) == sha(KERNEL[::-1])
        for pod in pods.values():
            bench.unpublish(pod)
        assert bench.mounts() == []


def test_the_same_once_more_changes_nothing(bench: PodBench) -> None:
    first, second, given = bench.pod("first"), bench.pod("second"), ticket(bench)
    with bench.agent(origin=origin(bench)):
        for pod in (first, second):
            bench.publish(pod, signed(given, KEY))
            learn(bench, pod)
        assert ask(bench, first) == {"kept": True}
        files = {path: path.stat().st_mtime_ns for path in (bench.store / "compiled").iterdir()}
        assert ask(bench, second) == {"kept": True}
        again = {path: path.stat().st_mtime_ns for path in (bench.store / "compiled").iterdir()}
        assert again == files
        assert "looked at less than 10 s ago" in ask(bench, second)["error"]["message"]


@pytest.mark.parametrize(
    ("modules", "kept"),
    [
        (None, []),
        ({"a": 1}, []),
        (["../x", 3, "a.b"], ["a.b"]),
        (["x" * 300, "b"], ["b"]),
    ],
)
def test_what_is_no_module_is_not_kept(bench: PodBench, modules: Any, kept: list[str]) -> None:
    pod, given = bench.pod("pod"), ticket(bench)
    with bench.agent(origin=origin(bench)):
        bench.publish(pod, signed(given, KEY))
        learn(bench, pod, modules)
        assert ask(bench, pod) == {"kept": True}
        said = note(bench, given)
        assert said is not None and said["modules"] == kept


@pytest.mark.parametrize("harm", ["link", "pipe", "folder is a link", "modules are a link", "huge"])
def test_what_means_harm_is_not_read(bench: PodBench, harm: str) -> None:
    pod, given = bench.pod("pod"), ticket(bench)
    secret = bench.folder / "secret"
    secret.mkdir()
    (secret / "token.json").write_text('["secret"]')
    with bench.agent(origin=origin(bench)):
        bench.publish(pod, signed(given, KEY))
        learn(bench, pod)
        root = own(bench, pod)
        if harm == "link":
            (root / "compiled" / "x").symlink_to(secret)
        elif harm == "pipe":
            os.mkfifo(root / "compiled" / "x")
        elif harm == "folder is a link":
            shutil.rmtree(root / "compiled")
            (root / "compiled").symlink_to(secret)
        elif harm == "huge":
            os.truncate(root / "compiled" / "triton" / "abc" / "kernel.so", 2 << 30)
        else:
            (root / "modules.json").unlink()
            (root / "modules.json").symlink_to(secret / "token.json")
        subprocess.run(["chown", "-hR", f"{USER}:{USER}", root], check=True)
        answer = ask(bench, pod)
        said = note(bench, given) or {"modules": []}
    if harm in ("link", "pipe", "huge"):
        assert answer["error"]["code"] == "bad_environment" and "manifest" not in said
    else:
        assert answer == {"kept": True}
    assert ("manifest" in said) == (harm == "modules are a link")
    assert "secret" not in said["modules"]


def test_a_pod_starts_without_a_lesson_where_it_cannot_be_had(bench: PodBench) -> None:
    first, second, given = bench.pod("first"), bench.pod("second"), ticket(bench)
    with bench.agent(origin=origin(bench)):
        bench.publish(first, signed(given, KEY))
        learn(bench, first)
        assert ask(bench, first) == {"kept": True}
        said = note(bench, given)
        assert said is not None
        BlobStore(origin(bench)).put_note(note_of(given, ""), {**said, "manifest": "0" * 64})
        bench.publish(second, signed(given, KEY))
        assert "compiled" not in bench.on_node("ls", str(second.target))


def test_a_build_has_no_lesson(bench: PodBench) -> None:
    pod = bench.pod("pod")
    build = ticket(bench, environment="", use=Use.BUILD, note=f"environments/{'e' * 64}")
    with bench.agent(origin=origin(bench)):
        bench.publish(pod, signed(build, KEY))
        assert "not a request of this socket" in ask(bench, pod)["error"]["message"]
