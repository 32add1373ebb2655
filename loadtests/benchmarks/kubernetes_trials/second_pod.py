"""A model of 3 GiB in a second pod of its node, and in one of another node."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import at_most, exactly
from loadtests.harness.child_process import BIN, ROOT, BenchmarkFailed, output_of
from loadtests.harness.installation import until
from loadtests.systems.release_user import ReleaseUser, release_user
from tests.cluster.agents import Agents
from tests.cluster.helm import RELEASE
from tests.support.end_to_end.cold_start import ColdStart

NAMES = ("bench-pod-first", "bench-pod-second", "bench-pod-third")
TENSORS, QUICK_TENSORS, TENSOR_BYTES = 128, 32, 8 << 20
"""Of each file."""
FILES = 3
"""As large models come."""
SAVED_S, READY_S = 300.0, 300.0
SERVICE = """
import bentoml
from safetensors.torch import load_file

image = bentoml.images.Image(python_version="3.11").requirements_file("requirements.txt")


@bentoml.service(image=image)
class Reader:
    model = bentoml.models.BentoModel("numbers:VERSION")

    def __init__(self) -> None:
        self.tensors = {}
        for number in range(FILES):
            self.tensors |= load_file(self.model.path_of(f"model-{number}.safetensors"))

    @bentoml.api
    def sums(self) -> dict:
        return {name: float(tensor.sum()) for name, tensor in self.tensors.items()}
"""
REQUIREMENTS = Path("examples/embedder/requirements.txt")
"""With PyTorch, whose tensors are views of the memory that all pods of a node share; NumPy's are
copies."""
SAVE = f"""
import bentoml, numpy, sys
from safetensors.numpy import save_file
random = numpy.random.default_rng()
with bentoml.models.create(f"numbers:{{sys.argv[3]}}") as model:
    for file in range({FILES}):
        tensors = {{
            f"t{{file}}-{{number}}": random.random({TENSOR_BYTES} // 4, dtype="float32")
            for number in range(int(sys.argv[2]))
        }}
        save_file(tensors, model.path_of(f"model-{{file}}.safetensors"))
bentoml.build("service:Reader", name="bench-reader", version=sys.argv[3], build_ctx=sys.argv[1])
"""
_GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Moment:
    """What a node's agent has fetched until now, and what memory is in use on the node."""

    origin_bytes: int
    peer_bytes: int
    memory_bytes: int


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    tensors = QUICK_TENSORS if quick else TENSORS
    source = folder / "reader"
    source.mkdir()
    version = uuid.uuid4().hex[:8]  # the store has those of earlier runs
    written = SERVICE.replace("VERSION", version).replace("FILES", str(FILES))
    (source / "service.py").write_text(written)
    shutil.copy(ROOT / REQUIREMENTS, source)
    async with release_user(folder) as user:
        saving = (BIN / "python", "-c", SAVE, source, str(tensors), version)
        log = folder / "save.log"
        await output_of(*saving, log=log, timeout_s=SAVED_S, environ=user.environ, folder=source)
        try:
            model_bytes = FILES * tensors * TENSOR_BYTES
            return await _measured(user, source, f"bench-reader:{version}", model_bytes)
        finally:
            await user.delete(*NAMES)


async def _measured(user: ReleaseUser, source: Path, bento: str, model_bytes: int) -> list[Row]:
    token = await asyncio.to_thread(user.release.token, "cluster")
    agents = Agents(user.release.kubectl, RELEASE, source, token)
    one = {"Reader": {"scaling": {"min_replicas": 1, "max_replicas": 1}}}
    await user.deploy(source, NAMES[0], one, bento=bento)
    first = await _start(user, NAMES[0])
    here = str(first["node"])
    nodes = [str(node["metadata"]["name"]) for node in await user.listed("nodes")]
    (there, *_) = [name for name in nodes if name != here]
    rows = []
    for name, node, closed in ((NAMES[1], here, there), (NAMES[2], there, here)):
        async with user.closed(closed):
            before = await asyncio.to_thread(_moment, agents, node)
            body = {"name": name, "bento": bento, "services": one}
            await user.ask("/api/v2/deployments", "POST", body)
            replica = await _start(user, name)
            await user.call(name, "sums")  # reads every page of it
            after = await asyncio.to_thread(_moment, agents, node)
        if replica["node"] != node:
            raise BenchmarkFailed(f"{name} runs on {replica['node']}, not on {node}")
        started = ColdStart.of((await user.deployment(name, "/cold_starts"))[0])
        rows += _rows(name, before, after, started, model_bytes)
    return rows


async def _start(user: ReleaseUser, name: str) -> dict[str, Any]:
    """Its replica, once it is ready and has said how it started."""
    found: list[dict[str, Any]] = []

    async def told() -> bool:
        found[:] = (await user.deployment(name))["live"]["replicas"]
        return any(phase["name"] == "weights" for one in found for phase in one["phases"]) and (
            found[0]["state"] == "ready"
        )

    await until(told, READY_S, f"{name} has no replica that is ready")
    return found[0]


def _moment(agents: Agents, node: str) -> Moment:
    said = (_GROUPS / f"hotplate-{node}" / "memory.stat").read_text()
    taken = {line.split()[0]: int(line.split()[1]) for line in said.splitlines()}
    origin_bytes, peer_bytes = agents.moved_bytes(node)
    # What files hold besides is given back when somebody needs it.
    return Moment(origin_bytes, peer_bytes, taken["total_rss"] + taken["total_shmem"])


def _rows(
    name: str, before: Moment, after: Moment, started: ColdStart, model_bytes: int
) -> list[Row]:
    size = f"model of {model_bytes >> 20} MiB"
    origin = after.origin_bytes - before.origin_bytes
    peers = after.peer_bytes - before.peer_bytes
    weights_ms = started.length_s["weights"] * 1000
    more = (after.memory_bytes - before.memory_bytes) / model_bytes * 100
    if name == NAMES[1]:
        what = f"second pod on a node, {size}"
        return [
            bounded(f"{what}: bytes fetched", exactly(0), origin + peers, 0),
            bounded(f"{what}: weights phase, ms", at_most(100), weights_ms, 0),
            bounded(f"{what}: more memory of the node, % of it", at_most(10), more, 1),
            Row(f"{what}: start, s", ours=started.whole_s),
        ]
    what = f"second node, {size}"
    return [
        bounded(f"{what}: bytes of the origin", exactly(0), origin, 0),
        Row(f"{what}: MiB from its peer", ours=peers / 2**20, digits=0),
        Row(f"{what}: weights phase, ms", ours=weights_ms, digits=0),
        Row(f"{what}: start, s", ours=started.whole_s),
    ]
