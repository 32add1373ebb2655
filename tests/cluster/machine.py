"""What this machine lacks for a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.layout import REPOSITORY

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
_TRIAL = """\
mount --make-rprivate /
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay whole
ip link add trial type bridge
ip link add one type veth peer name two
nft add table ip trial
"""


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
    return _refused_by_the_kernel(REPOSITORY)


def _refused_by_the_kernel(disk: Path) -> str | None:
    """What of a node the kernel does not let us make, tried in namespaces that end with the trial.

    Layers of images are laid over each other on the disk where nodes are to keep theirs.
    """
    with tempfile.TemporaryDirectory(dir=disk, prefix=".trial-") as folder:
        for name in ("lower", "upper", "work", "whole"):
            Path(folder, name).mkdir()
        trial = ["unshare", "--net", "--mount", "sh", "-ec", _TRIAL]
        done = subprocess.run(trial, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    words = (done.stderr.strip().splitlines() or ["no word"])[-1]
    return f"A cluster needs namespaces, bridges, nftables and overlays of the kernel: {words}."
