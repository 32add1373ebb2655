"""The network of the test cluster: a bridge on the host, and a machine's own namespaces behind it.

A machine is a process that does nothing: its namespaces of network and mounts live as long as it
does, so nothing has a name that could be left behind. Daemons enter them by its pid.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.daemons import Daemons
from tests.cluster.errors import TestClusterError
from tests.cluster.layout import (
    BRIDGE,
    HOST_ADDRESS,
    PROXY_ADDRESS,
    SERVICE_NETWORK,
    node_address,
    pod_network,
)

_PREFIX = "/24"
_NAMESPACES_WITHIN_S = 10


@dataclass(frozen=True, slots=True)
class Lan:
    """The bridge, and what is plugged into it."""

    daemons: Daemons

    def ensure_bridge(self) -> None:
        """The bridge with the host's address, and the host's way to Services."""
        if not _there(BRIDGE):
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("address", "add", HOST_ADDRESS + _PREFIX, "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
        _ip("route", "replace", SERVICE_NETWORK, "via", PROXY_ADDRESS, "dev", BRIDGE)

    def ensure_machine(self, name: str, address: str) -> int:
        """The pid of the machine `name`, plugged into the bridge with its address."""
        holder = f"{name}-machine"
        sleep = shutil.which("sleep") or "sleep"
        self.daemons.ensure(holder, ["/usr/bin/unshare", "--net", "--mount", sleep, "infinity"])
        daemon = self.daemons.find(holder)
        if daemon is None:
            raise TestClusterError(f"{holder} ended: {self.daemons.last_lines(holder)}")
        _await_namespaces(daemon.pid)
        if not _inside(daemon.pid, "ip", "link", "show", "eth0"):
            self._plug(name, daemon.pid, address)
        return daemon.pid

    def route_pods(self, numbers: list[int], machines: dict[str, int]) -> None:
        """Tells the host and each machine which node has which pods."""
        for number in numbers:
            way = ["replace", pod_network(number), "via", node_address(number)]
            _ip("route", *way, "dev", BRIDGE)
            for name, pid in machines.items():
                if name != f"node{number}":
                    _enter(pid, "ip", "route", *way, "dev", "eth0")

    def cut(self, name: str) -> None:
        """Takes the machine's link down."""
        _ip("link", "set", _plug_of(name), "down")

    def mend(self, name: str) -> None:
        """Takes the machine's link up."""
        _ip("link", "set", _plug_of(name), "up")

    def remove(self) -> None:
        """The bridge and the routes over it; plugs go with their machines."""
        if _there(BRIDGE):
            _ip("link", "delete", BRIDGE)

    def _plug(self, name: str, pid: int, address: str) -> None:
        plug = _plug_of(name)
        if _there(plug):
            _ip("link", "delete", plug)
        _ip("link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", plug, "master", BRIDGE, "up")
        _enter(pid, "ip", "link", "set", "lo", "up")
        _enter(pid, "ip", "address", "add", address + _PREFIX, "dev", "eth0")
        _enter(pid, "ip", "link", "set", "eth0", "up")
        _enter(pid, "ip", "route", "add", "default", "via", HOST_ADDRESS)
        for setting in ("net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"):
            _enter(pid, "sysctl", "--quiet", "--write", setting)


def _plug_of(name: str) -> str:
    """Names of links have 15 characters at most."""
    return f"hp-{name}"


def _there(link: str) -> bool:
    done = subprocess.run(["ip", "link", "show", link], capture_output=True, check=False)
    return done.returncode == 0


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _enter(pid: int, *command: str) -> None:
    _run(["nsenter", f"--target={pid}", "--net", "--mount", "--", *command])


def _inside(pid: int, *command: str) -> bool:
    entering = ["nsenter", f"--target={pid}", "--net", "--", *command]
    return subprocess.run(entering, capture_output=True, check=False).returncode == 0


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestClusterError(f"{' '.join(command)}: {done.stderr.strip()}")


def _await_namespaces(pid: int) -> None:
    """`unshare` is this pid before it has made them: it has when it has become what it starts."""
    deadline = time.monotonic() + _NAMESPACES_WITHIN_S
    while Path(f"/proc/{pid}/comm").read_text().strip() == "unshare":
        if time.monotonic() > deadline:
            raise TestClusterError(
                f"process {pid} made no namespaces within {_NAMESPACES_WITHIN_S} s"
            )
        time.sleep(0.01)
