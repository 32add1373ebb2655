"""Nodes with links of a given speed: network namespaces on one bridge, each behind a veth pair
that lets through so many bytes a second in either direction (tc-tbf(8)).

Run as a program, it keeps that network while its standard input is open; the network ends with its
processes. It is in a user namespace, so that it needs no root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.child_process import BenchmarkFailed, module, running

OWN = ("unshare", "--map-root-user", "--net")
"""A command's prefix that runs it in a network of its own, with a loopback interface only."""
BURST_BYTES = 256 << 10
"""More than the largest packet (64 KiB): it then passes in one piece."""
QUEUE_MS = 50
"""Of a full link's queue."""


@dataclass(frozen=True)
class Node:
    """One end of a limited link."""

    host: str
    enter: tuple[str, ...]
    """A command's prefix that runs it there; empty where no prefix is needed."""


HERE = Node("127.0.0.1", ())
"""The network of this process."""


@asynccontextmanager
async def network(nodes: int, bytes_per_s: float, folder: Path) -> AsyncIterator[list[Node]]:
    """So many nodes, until the block ends. Raises BenchmarkFailed where networks cannot be made."""
    command = [*OWN, *module("loadtests.harness.network", nodes, bytes_per_s)]
    try:
        async with running(*command, log=folder / "network.log", piped=True) as child:
            yield [Node(one["host"], enter(one["pid"])) for one in await child.next_json()]
    except FileNotFoundError as error:
        raise BenchmarkFailed(f"networks cannot be made here: {error}") from None


def enter(pid: int) -> tuple[str, ...]:
    """A command's prefix that runs it in the network of that process."""
    return ("nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("bytes_per_s", type=float)
    flags = parser.parse_args()
    _run("ip", "link", "add", "hub", "type", "bridge")
    _run("ip", "link", "set", "hub", "up")
    holders: list[subprocess.Popen[bytes]] = []
    nodes = []
    try:
        for number in range(1, flags.nodes + 1):
            holders.append(holder := _holder())
            host = f"10.77.0.{number}"
            _connect(holder.pid, f"link{number}", host, flags.bytes_per_s)
            nodes.append({"host": host, "pid": holder.pid})
        print(json.dumps(nodes), flush=True)
        sys.stdin.read()
    finally:
        for holder in holders:
            holder.kill()


def _holder() -> subprocess.Popen[bytes]:
    """A process that keeps a network of its own, which is there when this returns."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    ours = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
        if holder.poll() is not None:
            sys.exit("unshare --net does not work here")
        time.sleep(0.001)  # unshare does not say when it is in its new network
    return holder


def _connect(pid: int, link: str, host: str, bytes_per_s: float) -> None:
    inside = ["nsenter", "--target", str(pid), "--net"]
    _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _run("ip", "link", "set", link, "master", "hub", "up")
    _run(*inside, "ip", "address", "add", f"{host}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _run(*inside, "ip", "link", "set", device, "up")
    _limit((), link, bytes_per_s)
    _limit(inside, "eth0", bytes_per_s)


def _limit(inside: Sequence[str], device: str, bytes_per_s: float) -> None:
    """Limits what is sent by this device."""
    rate = [f"{bytes_per_s * 8:.0f}bit", "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms"]
    _run(*inside, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", *rate)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
