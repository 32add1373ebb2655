"""A model to eight nodes at once, each behind a link of its own, from one origin behind another."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from blake3 import blake3

from loadtests.benchmarks.cache_stages.loading import TRANSFER, load
from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_most
from loadtests.harness.child_process import BenchmarkFailed, module, running
from loadtests.harness.network import Node, network
from loadtests.harness.report import median
from loadtests.systems.agents import Agent, agent
from loadtests.systems.model_file import ModelFile, model_file
from loadtests.systems.origins import Origin, origin

NODES = 8
PORT = 7000
LINK_BYTES_PER_S = 40e6
"""Two cores carry eight nodes and the origin; at this speed the links are the limit. A chain that
only receives, verifies and sends (`relay.py`) is measured too, to show that."""
SIZE_BYTES = 10**9
QUICK_BYTES = 64 << 20
CHAIN_S = 120.0


@dataclass(frozen=True)
class Stage:
    model: ModelFile
    origin: Origin
    nodes: Sequence[Node]
    token_file: Path
    digest: str
    """Of the file."""


@dataclass(frozen=True)
class Sample:
    seconds: float
    """Until the last node had the model."""
    origin_bytes: int
    cpu_s: float
    """Of all nodes and the origin."""

    @property
    def cpu_share(self) -> float:
        """The share of all cores of the machine."""
        return self.cpu_s / self.seconds / (os.cpu_count() or 1)


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    model = model_file(folder / "origin", QUICK_BYTES if quick else SIZE_BYTES)
    digest = blake3(model.path.read_bytes()).hexdigest()
    token_file = folder / "token"
    token_file.write_text(secrets.token_hex())
    async with (
        network(NODES + 1, LINK_BYTES_PER_S, folder) as (first, *nodes),
        origin(model.root, folder / "origin.log", node=first) as source,
    ):
        stage = Stage(model, source, nodes, token_file, digest)
        single_s = await _single(stage, folder)
        chain = await _chain(stage, folder)
        samples, among = [], []
        for _ in range(1 if quick else 3):
            # A sample leaves all nodes' copies on disk, so that it is removed at once.
            with tempfile.TemporaryDirectory(dir=folder) as own:
                samples.append(await _together(stage, stage.nodes, Path(own)))
            with tempfile.TemporaryDirectory(dir=folder) as own:
                async with _bad_peers(stage, stage.nodes[::2], Path(own)):
                    among.append(await _together(stage, stage.nodes[1::2], Path(own)))
    return _rows(model, single_s, chain, samples, among)


async def _single(stage: Stage, folder: Path) -> float:
    """Seconds of a single transfer from the origin to one node."""
    url, node = stage.origin.url_of(stage.model), stage.nodes[0]
    return (await load(TRANSFER, stage.model, url, folder, node=node)).seconds


async def _chain(stage: Stage, folder: Path) -> Sample:
    """A chain in which each node passes on what it receives: what links and cores allow."""
    url, relays = stage.origin.url_of(stage.model), []
    async with AsyncExitStack() as stack:
        for node in stage.nodes:
            what = (url, stage.model.size_bytes, node.host, PORT)
            last = ["--last"] if node is stage.nodes[-1] else []
            command = [*node.enter, *module("loadtests.programs.relay", *what, *last)]
            log = folder / f"relay-{node.host}.log"
            child = await stack.enter_async_context(running(*command, log=log, piped=True))
            await child.next_json()
            relays.append(child)
            url = f"http://{node.host}:{PORT}/"
        processes = [stage.origin.process, *relays]
        before_s = sum(one.cpu_s() for one in processes)
        for relay in relays:
            relay.write_line("go")
        seconds = max([(await relay.next_json(CHAIN_S))["seconds"] for relay in relays])
        used_s = sum(one.cpu_s() for one in processes) - before_s
    return Sample(seconds, stage.model.size_bytes, used_s)


@asynccontextmanager
async def _bad_peers(stage: Stage, nodes: Sequence[Node], folder: Path) -> AsyncIterator[None]:
    """Agents on these nodes that lie and stall in turns, until the block ends."""
    async with AsyncExitStack() as stack:
        for node, kind in zip(nodes, itertools.cycle(("lies", "stalls")), strict=False):
            what = (kind, stage.model.size_bytes, node.host, PORT)
            command = [*node.enter, *module("loadtests.programs.bad_peer", *what)]
            log = folder / f"bad-{node.host}.log"
            child = await stack.enter_async_context(running(*command, log=log, piped=True))
            await child.next_json()
        yield


async def _together(stage: Stage, nodes: Sequence[Node], folder: Path) -> Sample:
    """These nodes pull the model at once; in the end all must have the right bytes."""
    addresses = [f"{node.host}:{PORT}" for node in stage.nodes]
    url = stage.origin.url_of(stage.model)
    async with AsyncExitStack() as stack:
        agents = await asyncio.gather(
            *(stack.enter_async_context(_agent(stage, node, addresses, folder)) for node in nodes)
        )
        for one in agents:
            await (
                one.process.until_idle()
            )  # it allocates memory first, as it would on a machine of its own
        pullers = await asyncio.gather(
            *(
                stack.enter_async_context(one.puller(url, folder / f"pull-{one.address}.log"))
                for one in agents
            )
        )
        before_bytes, before_s = await stage.origin.sent_bytes(), _cpu_s(stage, agents)
        began = perf_counter()
        await asyncio.gather(*(puller.pull() for puller in pullers))
        seconds = perf_counter() - began
        used_s = _cpu_s(stage, agents) - before_s
        sent_bytes = await stage.origin.sent_bytes() - before_bytes
        digests = set(await asyncio.gather(*(puller.digest() for puller in pullers)))
    if digests != {stage.digest}:
        raise BenchmarkFailed(f"a node has other bytes than the origin: {digests}")
    return Sample(seconds, sent_bytes, used_s)


def _agent(
    stage: Stage, node: Node, addresses: Sequence[str], folder: Path
) -> AbstractAsyncContextManager[Agent]:
    return agent(
        folder / node.host,
        memory_bytes=stage.model.size_bytes,  # so that it allocates no more
        node=node,
        port=PORT,
        peers=[one for one in addresses if one != f"{node.host}:{PORT}"],
        token_file=stage.token_file,
    )


def _cpu_s(stage: Stage, agents: Sequence[Agent]) -> float:
    return stage.origin.process.cpu_s() + sum(one.process.cpu_s() for one in agents)


def _rows(
    model: ModelFile,
    single_s: float,
    chain: Sample,
    samples: Sequence[Sample],
    among: Sequence[Sample],
) -> Sequence[Row]:
    seconds = median(one.seconds for one in samples)
    from_origin = median(one.origin_bytes for one in samples) / model.size_bytes
    beside = median(one.seconds for one in among) / single_s
    cpu_share = median(one.cpu_share for one in samples)
    delivered_gb = NODES * model.size_bytes / 1e9
    cpu = {"ours": median(one.cpu_s for one in samples) / delivered_gb}
    cpu["raw"] = chain.cpu_s / delivered_gb
    what = f"{model.size_bytes / 1e9:.2g} GB to {NODES} nodes of {LINK_BYTES_PER_S / 1e6:g} MB/s"
    times = {"ours": seconds / single_s, "raw": chain.seconds / single_s}
    return [
        row(f"{what}: s (one transfer: {single_s:.1f})", {"ours": seconds, "raw": chain.seconds}),
        row(f"{what}: x one transfer", times, at_most(1.2)),
        row("bytes from the origin, x size", {"ours": from_origin}, at_most(1.02), 3),
        row("half of them lie or stall: x one transfer", {"ours": beside}, at_most(1.5)),
        row("CPU s / GB delivered", cpu),
        row("cores busy, %", {"ours": 100 * cpu_share, "raw": 100 * chain.cpu_share}, digits=0),
    ]
