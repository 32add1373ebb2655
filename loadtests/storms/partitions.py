"""Partitions between a gateway and the control plane, and between agents, also in one direction.

A second gateway reaches the control plane by a relay that loses what goes to it, what comes from
it, or both, and says nothing. It owns a deployment: its callers are answered by the replicas that
it knew, nothing is scaled down for want of reports, and what changed meanwhile is in force soon
after. Agents are nodes of a network; one loses what it sends to another (a neighbour's address that
is nobody's), then what it is sent, while it pulls: every pull ends with the right bytes, by the
origin where the peer is silent.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from hotplate.serving.gateway.fleet.members import rendezvous_owner
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.network import Node, network
from loadtests.harness.verdict import Verdict
from loadtests.systems.agents import Agent, agent
from loadtests.systems.faulted_platform import FaultedPlatform, faulted_platform
from loadtests.systems.kitchens import AWAKE, service_settings
from loadtests.systems.model_file import model_file
from loadtests.systems.origins import origin
from loadtests.systems.second_gateway import second_gateway
from loadtests.systems.silent_relay import Direction, SilentRelay
from loadtests.systems.steady_load import steady_load
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.patience import until

CUTS: Sequence[tuple[Direction, ...]] = (("to",), ("from",), ("to", "from"))
PARTS = ("gateway", "agents")
CALLERS = 4
BACK_S = 60.0
PORT = 7000
FILE_BYTES = 96 << 20
LINK_BYTES_PER_S = 20e6
CUT_AFTER_S = 1.5
"""A file takes 5 s at the links' speed."""
PULL_S = 120.0
AFTER_BYTES = 16 << 20
TRIES, TRY_EVERY_S = 12, 8.0
"""Files that are pulled after the partition, one after another, until some of one is the peer's."""
NOBODY = "02:00:00:00:00:99"
"""A hardware address that no node has: what is sent there is lost."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=45.0, help="each partition lasts (45)")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="of whom")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    for part in flags.parts:
        (folder / part).mkdir()
        if part == "gateway":
            await _gateways(verdict, folder / part, flags.seconds)
        else:
            await _agents(verdict, folder / part)
    return verdict


# A gateway and the control plane


async def _gateways(verdict: Verdict, folder: Path, seconds: float) -> None:
    async with AsyncExitStack() as stack:
        trial = await stack.enter_async_context(faulted_platform(folder, verdict))
        platform = trial.platform
        relay = await stack.enter_async_context(SilentRelay(platform.port))
        other = second_gateway(platform, folder / "second", f"http://127.0.0.1:{relay.port}")
        second = await stack.enter_async_context(other)
        _, health = await second.admin("/healthz")
        ids = [health["gateway"], *health["peers"]]
        names = (f"far-{number}" for number in itertools.count())
        name = next(n for n in names if rendezvous_owner(f"default/{n}", ids) == ids[0])
        await trial.rough.deploy(name, trial.tag, Kitchen=service_settings(**AWAKE))
        await trial.rough.settled(name, "running")
        await until(lambda: _owns(second, name, ids[0]))
        for cut in CUTS:
            await _partition(trial, relay, second, name, cut, seconds)


async def _partition(
    trial: FaultedPlatform,
    relay: SilentRelay,
    gateway: GatewayProcess,
    name: str,
    cut: tuple[Direction, ...],
    seconds: float,
) -> None:
    what = f"gateway, lost {' and '.join(cut)} the control plane"
    platform, verdict = trial.platform, trial.verdict
    before = await platform.replicas(name, "ready")
    lost = relay.lost_bytes
    async with steady_load(CALLERS, f"{await platform.url_of(name)}/cook", seconds=0.05) as load:
        with relay.cut(*cut):
            await asyncio.sleep(seconds)
            health = (await gateway.admin("/healthz"))[1]
        during = load.take()
        sent = load.sent
        await until(lambda: _connected(gateway), BACK_S)
    after = await platform.replicas(name, "ready")
    lost = relay.lost_bytes - lost
    verdict.figures[f"{what}: requests, failed, bytes lost"] = [sent, len(during), lost]
    verdict.figures[f"{what}: it says it is connected"] = health.get("connected")
    trial.verdict.expect(lost > 0, f"{what}: nothing was lost, so there was no partition")
    trial.verdict.expect(not during, f"{what}: {len(during)} requests failed: {during[:1]}")
    trial.verdict.expect(
        [one["id"] for one in before] == [one["id"] for one in after],
        f"{what}: replicas were {before} and are {after}",
    )
    await trial.recovered(what)


async def _owns(gateway: GatewayProcess, name: str, own: str) -> bool:
    return bool((await gateway.admin("/healthz"))[1]["owners"].get(f"default/{name}") == own)


async def _connected(gateway: GatewayProcess) -> bool:
    return bool((await gateway.admin("/healthz"))[1]["connected"])


# Agents


async def _agents(verdict: Verdict, folder: Path) -> None:
    """An origin and two nodes. The first one has the file; the second one pulls it, and what one of
    them sends to the other is lost from the middle of the pull on."""
    sizes = {"first": FILE_BYTES, **{f"after-{number}": AFTER_BYTES for number in range(TRIES)}}
    models = [
        model_file(folder / "origin", size, f"{name}.safetensors") for name, size in sizes.items()
    ]
    for losers in ((), (1,), (2,), (1, 2)):
        own = folder / f"lost-{'-'.join(map(str, losers))}"
        own.mkdir()
        async with AsyncExitStack() as stack:
            here, *nodes = await stack.enter_async_context(network(3, LINK_BYTES_PER_S, own))
            source = await stack.enter_async_context(
                origin(folder / "origin", own / "origin.log", node=here)
            )
            pair = await _pair(stack, nodes, own)
            await _pulls(verdict, pair, [source.url_of(model) for model in models], losers, own)


async def _pair(stack: AsyncExitStack, nodes: Sequence[Node], folder: Path) -> list[Agent]:
    addresses = [f"{node.host}:{PORT}" for node in nodes]
    token = folder / "token"
    token.write_text(secrets.token_hex())
    return [
        await stack.enter_async_context(
            agent(
                folder / node.host,
                memory_bytes=3 * FILE_BYTES,
                node=node,
                port=PORT,
                peers=[one for one in addresses if not one.startswith(f"{node.host}:")],
                token_file=token,
            )
        )
        for node in nodes
    ]


async def _pulls(
    verdict: Verdict, pair: list[Agent], urls: Sequence[str], losers: Sequence[int], folder: Path
) -> None:
    what = f"agents, lost from {' and '.join(map(str, losers)) or 'none'}"
    holder, taker = pair
    for url in urls:
        await holder.pull(url, folder / "holder.log")
    async with taker.puller(urls[0], folder / "taker.log") as puller:
        pulling = asyncio.create_task(puller.pull())
        await asyncio.sleep(CUT_AFTER_S)
        with _lost(pair, losers):
            try:
                async with asyncio.timeout(PULL_S):
                    pulled = await pulling
            except (TimeoutError, BenchmarkFailed) as error:
                verdict.broken.append(f"{what}: the pull did not end: {error!r}")
                return
        digest = await puller.digest()
    async with holder.puller(urls[0], folder / "again.log") as puller:
        await puller.pull()
        same = digest == await puller.digest()
    share = pulled["from_origin_bytes"] / FILE_BYTES
    verdict.figures[f"{what}: s, share from the origin"] = [
        round(pulled["seconds"], 1),
        round(share, 2),
    ]
    if not same:
        verdict.broken.append(f"{what}: the second agent has other bytes than the first")
    if bool(losers) != (share > 0):
        verdict.broken.append(
            f"{what}: {share:.0%} came from the origin, so there was "
            f"{'no partition' if losers else 'one before any was made'}"
        )
    await _whole_again(verdict, what, taker, urls[1:], folder)


async def _whole_again(
    verdict: Verdict, what: str, taker: Agent, urls: Sequence[str], folder: Path
) -> None:
    """Notes after how long the peer gives bytes again. It is suspected for 10 s after a silence,
    and for longer after another one."""
    now = asyncio.get_running_loop().time
    began = now()
    for url in urls:
        pulled = await taker.pull(url, folder / "after.log")
        if pulled["from_peers_bytes"]:
            verdict.figures[f"{what}, and whole again: peer after, s"] = round(now() - began, 1)
            return
        await asyncio.sleep(TRY_EVERY_S)
    verdict.broken.append(f"{what}: {now() - began:.0f} s later nothing comes from the peer")


@contextmanager
def _lost(pair: Sequence[Agent], losers: Sequence[int]) -> Iterator[None]:
    """What the agents of these numbers send to the other one is lost meanwhile: the other one's
    neighbour entry names a hardware address that nobody has."""
    ways = [(pair[loser - 1].node, pair[2 - loser].node) for loser in losers]
    entry = ("ip", "neigh", "replace")
    for node, other in ways:
        subprocess.run(
            [*node.enter, *entry, other.host, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0"],
            check=True,
        )
    try:
        yield
    finally:
        for node, other in ways:
            delete = ("ip", "neigh", "del", other.host, "dev", "eth0")
            subprocess.run([*node.enter, *delete], check=True)
