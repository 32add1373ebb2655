"""Replicas of one model on one node: the memory of its weights, and how soon each has them.

One agent serves replicas that are processes of their own and read every page of every tensor. A
second model after the first shows what it saves to use memory again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hotplate.cache.client import AgentClient
from hotplate.cache.manifest import Manifest, ManifestEntry
from hotplate.cache.store.blobs import BlobStore
from loadtests.harness.verdict import Verdict
from tests.support.cache.fakes import AgentProcess, random_bytes
from tests.support.processor import cpu_s

TENSOR_BYTES = 32 << 20
MEMORY_LIMIT = 1.1
"""Of the weights' size, for all replicas together."""
SECOND_LIMIT_S = 0.05

_REPLICA = """
import json, sys, time
import torch
from hotplate.serving.weights import load_file
torch.zeros(1 << 20, dtype=torch.uint8)[::4096].sum()
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
tensors = load_file(sys.argv[1])
loaded_s = time.perf_counter() - began
total = sum(int(tensor[::4096].sum()) for tensor in tensors.values())
print(json.dumps([loaded_s, total]), flush=True)
sys.stdin.readline()
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=int, default=1024, help="size of each model")
    parser.add_argument("--replicas", type=int, default=4)


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    size_bytes = flags.mib << 20
    store = BlobStore(f"file://{folder}/store")
    manifests = [await asyncio.to_thread(_publish, store, size_bytes, n) for n in range(2)]
    options: dict[str, Any] = {"arena_limit_bytes": 3 * size_bytes, "disk_reserve_bytes": 1}
    with AgentProcess(folder / "data", f"file://{folder}/store", **options) as agent:
        client = AgentClient(agent.url)
        for name, manifest in zip(("first", "second"), manifests, strict=True):
            await _bring(verdict, agent, client, name, manifest)
        root = (await client.tree(manifests[0].digest, wait="all")).root
        lease_socket = folder / "agent.sock"
        await client.admit(str(lease_socket), [manifests[0].digest])
        env = {**os.environ, "HOTPLATE_AGENT_SOCKET": str(lease_socket)}
        env["HOTPLATE_TREES"] = str(folder / "data" / "trees")
        command = [sys.executable, "-c", _REPLICA, f"{root}/model.safetensors"]
        replicas = [_start(command, env) for _ in range(flags.replicas)]
        try:
            await asyncio.to_thread(_load, verdict, replicas, agent.process.pid, size_bytes)
        finally:
            for replica in replicas:
                replica.kill()
                replica.communicate()
        await client.close()
    return verdict


def _publish(store: BlobStore, size_bytes: int, seed: int) -> Manifest:
    """One Safetensors file of bytes; no two of its chunks are the same."""
    count = size_bytes // TENSOR_BYTES
    spans = [[n * TENSOR_BYTES, (n + 1) * TENSOR_BYTES] for n in range(count)]
    tensors = {
        f"layer.{n:03}": {"dtype": "U8", "shape": [TENSOR_BYTES], "data_offsets": span}
        for n, span in enumerate(spans)
    }
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    block = random_bytes(TENSOR_BYTES, seed)
    with store.writer() as writer:
        writer.write(len(header).to_bytes(8, "little") + header)
        for n in range(count):
            writer.write(n.to_bytes(8, "little"))
            writer.write(block[8:])
        blob = writer.commit()
    manifest = Manifest((ManifestEntry("model.safetensors", blob=blob),))
    store.put_manifest(manifest)
    return manifest


async def _bring(
    verdict: Verdict, agent: AgentProcess, client: AgentClient, name: str, manifest: Manifest
) -> None:
    began, before_s = time.monotonic(), cpu_s(agent.process.pid)
    await client.tree(manifest.digest)
    while (await client.progress(manifest.digest)).bytes_verified < manifest.size_bytes:  # noqa: ASYNC110
        await asyncio.sleep(0.1)  # asking takes the agent's time too
    gb = manifest.size_bytes / 1e9
    verdict.figures[f"{name} model, verified, GB/s"] = gb / (time.monotonic() - began)
    verdict.figures[f"{name} model, agent's CPU s/GB"] = (cpu_s(agent.process.pid) - before_s) / gb
    await client.tree(manifest.digest, wait="all")
    await asyncio.sleep(1)


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    replica = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert replica.stdout is not None
    replica.stdout.readline()
    return replica


def _load(
    verdict: Verdict, replicas: list[subprocess.Popen[str]], agent_pid: int, size_bytes: int
) -> None:
    pids = [replica.pid for replica in replicas]
    before = _pss_bytes([agent_pid, *pids])
    agents_bytes = size_bytes  # the agent had them all before; Pss gives each process its share
    waited_s, sums = [], set()
    for replica in replicas:
        assert replica.stdin is not None and replica.stdout is not None
        replica.stdin.write("go\n")
        replica.stdin.flush()
        loaded_s, total = json.loads(replica.stdout.readline())
        waited_s.append(loaded_s)
        sums.add(total)
    grown = _pss_bytes([agent_pid, *pids]) - before
    shares = (agents_bytes + grown) / size_bytes
    verdict.figures["weights' memory / size"] = shares
    for number, one_s in enumerate(waited_s, 1):
        verdict.figures[f"replica {number} has its weights after, ms"] = 1000 * one_s
    if shares > MEMORY_LIMIT:
        verdict.broken.append(f"the weights take {shares:.2f} of their size, not {MEMORY_LIMIT}")
    if waited_s[1] > SECOND_LIMIT_S:
        verdict.broken.append(f"the second replica waited {waited_s[1]:.3f} s for its weights")
    if len(sums) != 1:
        verdict.broken.append("replicas read different bytes")


def _pss_bytes(pids: list[int]) -> int:
    """Memory of these processes together, what they share counted once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total
