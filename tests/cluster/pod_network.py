"""The network of a pod, and what of it is lost for a while. `word` is in the command of what runs
in the pod."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.processes import pids


@contextmanager
def cut_from_each_other(one: dict[str, Any], other: dict[str, Any], word: str) -> Iterator[None]:
    """Nothing that two pods send to each other arrives while the block runs; both reach all
    others."""
    _routes("add", one, other, word)
    try:
        yield
    finally:
        _routes("delete", one, other, word)


@contextmanager
def silenced(pod: dict[str, Any], word: str, port: int) -> Iterator[int]:
    """The connections to `port` of others that a pod has now are lost without a word, as when the
    other machine loses its power; new ones are made. How many they are."""
    pid = pids(pod, word)[0]
    own = sorted(_ports_to(pid, port))
    assert own, f"{pod['metadata']['name']} has no connection to port {port}"
    ports = ", ".join(map(str, own))
    with _dropped(pid, f"tcp sport {{ {ports} }}", f"tcp dport {{ {ports} }}"):
        yield len(own)


@contextmanager
def unreachable(pod: dict[str, Any], word: str) -> Iterator[None]:
    """The pod reaches its own node while the block runs, and nobody else."""
    node, pid = pod["status"]["hostIP"], pids(pod, word)[0]
    way = subprocess.run(
        ["nsenter", f"--target={pid}", "--net", "ip", "route", "get", node],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    gateway = way[way.index("via") + 1]  # the node's address among its pods
    own = f"{{ 127.0.0.1, {node}, {gateway}, {pod['status']['podIP']} }}"
    with _dropped(pid, f"ip daddr != {own}", f"ip saddr != {own}"):
        yield


@contextmanager
def _dropped(pid: int, sent: str, received: str) -> Iterator[None]:
    """Drops in a process's network what these expressions of nftables say."""
    _nft(pid, "add table inet faults")
    try:
        for hook, what in (("output", sent), ("input", received)):
            _nft(pid, f"add chain inet faults {hook} {{ type filter hook {hook} priority 0; }}")
            _nft(pid, f"add rule inet faults {hook} {what} counter drop")
        yield
    finally:
        _nft(pid, "delete table inet faults")


def _ports_to(pid: int, port: int) -> Iterator[int]:
    """Our ends of a process's network's established connections over IPv4 to that port."""
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if state == "01" and int(remote.rpartition(":")[2], 16) == port:
            yield int(local.rpartition(":")[2], 16)


def _nft(pid: int, command: str) -> None:
    subprocess.run(["nsenter", f"--target={pid}", "--net", "nft", command], check=True)


def _routes(change: str, one: dict[str, Any], other: dict[str, Any], word: str) -> None:
    """Changes in each pod's network the route that ends at the other pod's address."""
    for inside, address in ((one, other["status"]["podIP"]), (other, one["status"]["podIP"])):
        enter = ["nsenter", f"--target={pids(inside, word)[0]}", "--net"]
        changing = ["ip", "route", change, "blackhole", f"{address}/32"]
        subprocess.run([*enter, *changing], check=True)
