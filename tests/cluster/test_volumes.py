"""Pods of a real kubelet mount what their node's agent brings, and read on without the agent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.volumes.ticket import Ticket, Use, VolumeModel
from tests.cluster.agents import Agents
from tests.cluster.errors import TestClusterError
from tests.cluster.helm import Helm
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import Layout
from tests.cluster.stand_ins import StandIns

pytestmark = [pytest.mark.cluster, pytest.mark.together]
MODEL_BYTES = 64 << 20
LOOK = """
import json, os, hashlib
from hotplate.cache.reader import open_file
model = "/hotplate/models/bert/v1/model.safetensors"
with open_file("/hotplate/agent.sock", model) as file:
    file.wait_linked()
    lent = hashlib.sha256(file.view).hexdigest()
written = []
for place in ("", "env", "bento", "models/bert/v1", "parts"):
    try:
        open(f"/hotplate/{place}/new", "w")
        written.append(place)
    except OSError:
        pass
print(json.dumps({
    "lent": lent, "own": hashlib.sha256(open(model, "rb").read()).hexdigest(),
    "bento": open("/hotplate/bento/bento.yaml").read(),
    "env": open("/hotplate/env/lib/hello.py").read(),
    "job": json.load(open("/hotplate/job.json")),
    "written": written, "user": os.getuid(),
}))
"""
READ_ON = """
import os, signal, sys, time
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
count = 0
names = sorted(os.listdir("/hotplate/env/lib"))
print("reading", flush=True)
while not ended:
    with open("/hotplate/models/bert/v1/model.safetensors", "rb") as file:
        file.seek(count * 4096 % (64 << 20))
        assert len(file.read(4096)) == 4096
    # Each is opened for the first time by this pod, as a module that is imported late.
    assert open("/hotplate/env/lib/" + names[count % len(names)]).read()
    count += 1
    time.sleep(0.02)
print("read", count, flush=True)
"""


BUILD = """
import json, os, subprocess, sys
from hotplate.serving.replica.inside.building import program
env = {**os.environ, "UV_CACHE_DIR": "/scratch/uv", "UV_PYTHON_DOWNLOADS": "never"}
make = ["uv", "venv", "--quiet", "--relocatable", "--python", "python3.11", "/hotplate/env"]
subprocess.run(make, check=True, env=env)
with open("/hotplate/env/lib/python3.11/site-packages/built.py", "w") as file:
    file.write(f"here = __file__  # {os.urandom(8).hex()}")  # which no node has yet
if "harm" in sys.argv:
    os.symlink("/etc", "/hotplate/env/etc")
try:
    print(json.dumps(program.publish("/hotplate/agent.sock")))
except program.BuildEnded as ended:
    print(json.dumps(ended.failure.sentence))
"""
LEARN = """
import json, os, socket
os.makedirs("/scratch/compiled/triton")
with open("/scratch/compiled/triton/kernel.so", "w") as file:
    file.write("kernel")
with open("/scratch/modules.json", "w") as file:
    json.dump(["bentoml", "torch"], file)
with socket.socket(socket.AF_UNIX) as agent:
    agent.connect("/hotplate/agent.sock")
    agent.sendall(b'{"keep": true}\\n')
    print(agent.makefile().readline())
"""
LEARNT = """
import json
print(json.dumps([
    open("/hotplate/compiled/triton/kernel.so").read(), json.load(open("/hotplate/modules.json"))
]))
"""
USE = """
import subprocess
look = "import built, json, sys; print(json.dumps([built.here, sys.prefix]))"
subprocess.run(["/hotplate/env/bin/python", "-c", look], check=True)
"""


@dataclass(frozen=True)
class Bench:
    """Agents, and a revision that their blob store has."""

    agents: Agents
    kubectl: Kubectl
    namespace: str
    ticket: Ticket

    def mount(
        self, name: str, node: str, program: str, ticket: str = "", own: Sequence[str] = ()
    ) -> None:
        given = ticket or self.agents.signed(self.ticket)
        self.agents.mount(self.namespace, name, node, given, program, own)

    def printed(self, name: str) -> Any:
        """What the pod prints, once it has ended well."""
        ended = "--for=jsonpath={.status.phase}=Succeeded"
        self.kubectl("wait", ended, f"pod/{name}", *self._where, "--timeout=90s")
        return json.loads(self.kubectl("logs", name, *self._where))

    def await_said(self, name: str, word: str) -> None:
        self.kubectl.wait("logs", name, *self._where, timeout_s=60, word=word)

    @property
    def _where(self) -> list[str]:
        return [f"--namespace={self.namespace}"]


@pytest.fixture(scope="module")
def agents(
    cluster: Installation,
    nodes_without_agents: None,
    kubeconfig: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    list(StandIns(cluster.daemons).ensure())
    kubectl, helm = Kubectl(Layout(), kubeconfig), Helm(Layout(), kubeconfig)
    kubectl("create", "namespace", "volumes")
    made = Agents.install(helm, kubectl, "volumes", tmp_path_factory.mktemp("agents"))
    yield made
    made.remove()
    kubectl("delete", "namespace", "volumes", "--wait=false")


@pytest.fixture
def bench(agents: Agents, kubectl: Kubectl, namespace: str) -> Bench:
    """Its files are new to all nodes."""
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", namespace, restricted)
    kubectl.wait("get", "serviceaccount", "default", f"--namespace={namespace}", timeout_s=30)
    modules: dict[str, bytes | None] = {
        f"lib/m{each:03}.py": f"# {namespace} {each}".encode() for each in range(200)
    }
    environment = agents.keep({**modules, "lib/hello.py": b"x = 1"})
    bento = agents.keep({"bento.yaml": b"service: hello"})
    model = agents.keep({"config.json": b"{}", "model.safetensors": os.urandom(MODEL_BYTES)})
    ticket = Ticket(
        namespace=namespace,
        service_account="default",
        organization="acme",
        deployment="hello",
        revision=1,
        service="Hello",
        use=Use.REPLICA,
        bento=bento.digest,
        environment=environment.digest,
        models=(VolumeModel("bert", "v1", model.digest),),
    )
    return Bench(agents, kubectl, namespace, ticket)


def test_a_second_pod_of_a_node_fetches_nothing_and_another_node_asks_its_peer(
    bench: Bench,
) -> None:
    before = {node: bench.agents.moved_bytes(node) for node in ("node1", "node2")}
    bench.mount("first", "node1", LOOK)
    seen = bench.printed("first")
    assert seen["lent"] == seen["own"]
    assert (seen["bento"], seen["env"]) == ("service: hello", "x = 1")
    assert (seen["job"], seen["written"], seen["user"]) == ({"absent": []}, [], 10001)
    fetched = bench.agents.moved_bytes("node1")
    assert fetched[0] - before["node1"][0] >= MODEL_BYTES

    bench.mount("second", "node1", LOOK)
    assert bench.printed("second") == seen
    assert bench.agents.moved_bytes("node1") == fetched

    bench.mount("third", "node2", LOOK)
    assert bench.printed("third") == seen
    origin, peers = bench.agents.moved_bytes("node2")
    assert origin == before["node2"][0]
    assert peers - before["node2"][1] >= MODEL_BYTES
    for name in ("first", "second", "third"):
        bench.kubectl("delete", "pod", name, f"--namespace={bench.namespace}", "--timeout=30s")
    for node in ("node1", "node2"):
        asked = ["exec", bench.agents.pod(node)["metadata"]["name"]]
        asked.append(f"--namespace={bench.agents.namespace}")
        look = "import os; print(os.listdir('/var/lib/hotplate/volumes'))"
        assert bench.kubectl(*asked, "--", "python3.11", "-c", look).strip() == "[]"
        mounts = bench.kubectl(*asked, "--", "cat", "/proc/self/mountinfo")
        assert "kubernetes.io~csi" not in mounts


def test_a_forged_or_copied_ticket_is_refused_in_the_pods_events(bench: Bench) -> None:
    copied = bench.agents.signed(replace(bench.ticket, namespace="another"))
    bench.mount("thief", "node1", LOOK, copied)
    bench.mount("forger", "node1", LOOK, bench.agents.signed(bench.ticket)[:-1] + "AA")
    for name, sentence in (
        ("thief", "it was copied from another one"),
        ("forger", "was not signed by this cluster's control plane"),
    ):
        fields = f"--field-selector=reason=FailedMount,involvedObject.name={name}"
        asked = ["get", "events", f"--namespace={bench.namespace}", fields]
        path = "jsonpath={.items[0].message}"
        bench.kubectl.wait(*asked, f"--output={path}", timeout_s=30)
        said = bench.kubectl(*asked, f"--output={path}")
        assert "code = PermissionDenied" in said and sentence in said
        assert "acme" not in said


def test_pods_read_on_while_their_agent_is_killed_and_while_its_pod_is_deleted(
    bench: Bench,
) -> None:
    bench.mount("ready", "node1", LOOK)
    bench.printed("ready")  # from now on the weights are on the node
    for each in range(4):
        bench.mount(f"reader{each}", "node1", READ_ON)
    for each in range(4):
        bench.await_said(f"reader{each}", "reading")
    before = bench.agents.pod("node1")
    bench.agents.kill("node1")
    bench.mount("starts", "node1", LOOK)
    assert bench.printed("starts")["user"] == 10001
    after = bench.agents.pod("node1")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    restarts = [one["status"]["containerStatuses"][0]["restartCount"] for one in (before, after)]
    assert restarts[1] == restarts[0] + 1

    own = f"--namespace={bench.agents.namespace}"
    bench.kubectl("delete", "pod", after["metadata"]["name"], own, "--timeout=60s")
    bench.agents.await_ready()
    bench.mount("starts-again", "node1", LOOK)
    assert bench.printed("starts-again")["user"] == 10001
    for each in range(4):
        name = f"pod/reader{each}"
        where = f"--namespace={bench.namespace}"
        phase = bench.kubectl("get", name, where, "--output=jsonpath={.status.phase}")
        assert phase == "Running", bench.kubectl("logs", name, where)
        bench.kubectl("delete", name, where, "--timeout=30s")
    with pytest.raises(TestClusterError):
        bench.kubectl("get", "pod/reader0", f"--namespace={bench.namespace}")


def test_what_a_pod_has_built_runs_in_a_pod_of_another_node_that_has_it_from_the_first(
    bench: Bench,
) -> None:
    note = f"environments/{bench.ticket.environment}"
    revision = replace(bench.ticket, models=())
    about = {"organization": "acme"}
    build = replace(revision, environment="", use=Use.BUILD, note=note, about=about)
    own, signed = ("/hotplate/env", "/scratch"), bench.agents.signed
    harmed = BUILD.replace('"harm" in sys.argv', "True")
    bench.mount("harmful", "node1", harmed, signed(build), own)
    assert "the link 'etc' leads to '/etc', which is outside" in bench.printed("harmful")
    bench.mount("build", "node1", BUILD, signed(build), own)
    digest = bench.printed("build")
    assert bench.agents.note(note) == {**about, "manifest": digest}

    for node in ("node1", "node2"):
        before = bench.agents.moved_bytes(node)
        bench.mount(f"use-{node}", node, USE, signed(replace(revision, environment=digest)))
        place = "/hotplate/env/lib/python3.11/site-packages/built.py"
        assert bench.printed(f"use-{node}") == [place, "/hotplate/env"]
        origin, peers = bench.agents.moved_bytes(node)
        bento = len("service: hello")
        assert origin - before[0] <= bento
        assert (peers > before[1]) == (node == "node2")


def test_what_a_pod_has_learnt_is_shown_to_a_later_one_on_another_node(bench: Bench) -> None:
    bench.mount("learns", "node1", LEARN, own=("/scratch",))
    assert bench.printed("learns") == {"kept": True}
    bench.mount("later", "node2", LEARNT)
    assert bench.printed("later") == ["kernel", ["bentoml", "torch"]]
