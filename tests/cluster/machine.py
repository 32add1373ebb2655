"""What this machine lacks for a cluster."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.cluster import binaries

_PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
_HIERARCHIES = ("cpu", "cpuset", "memory", "pids")


def lacks() -> str | None:
    """One sentence, or None where a cluster can run."""
    if os.geteuid() != 0:
        return "A cluster needs root, for its nodes' namespaces; run this as root."
    packages = {package for program, package in _PROGRAMS.items() if not shutil.which(program)}
    if not Path("/usr/lib/cni/bridge").exists():
        packages.add("containernetworking-plugins")
    if packages:
        missing = " ".join(sorted(packages))
        return f"A cluster needs packages that are not here; run apt-get install {missing}."
    if binaries.missing() and not shutil.which("go"):
        return "A cluster's programs are built by Go, which is not here; install Go 1.26 or newer."
    groups = Path("/sys/fs/cgroup")
    if not all(os.access(groups / name, os.W_OK) for name in _HIERARCHIES):
        return f"A cluster needs control groups of version 1 that can be written below {groups}."
    return None
