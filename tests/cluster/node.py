"""A node with real pods: a kubelet, containerd and kube-proxy in namespaces of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.authority import Authority
from tests.cluster.configuration import write, write_kubeconfig
from tests.cluster.control_groups import ControlGroup
from tests.cluster.daemons import Daemons
from tests.cluster.errors import TestClusterError
from tests.cluster.images.oci import Archive
from tests.cluster.images.small import image_name
from tests.cluster.lan import Lan
from tests.cluster.layout import (
    DNS_ADDRESS,
    POD_NETWORK,
    Layout,
    node_address,
    pod_network,
)

_KILLED_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.05
_CNI_PROGRAMS = "/usr/lib/cni"
_OWN = ("/var/lib/kubelet", "/var/lib/hotplate", "/var/log")
"""Folders of the machine that each node has for itself, and shares within itself. A kubelet removes
logs of pods that it does not know, which would be those of the others."""
_MOUNTING = """\
set -e
findmnt --mountpoint /run --source tmpfs-{name} >/dev/null && exit 0
mount --make-rprivate /
{binds}
mount -t tmpfs -o mode=755 tmpfs-{name} /run
mount --make-rshared /
"""


@dataclass(frozen=True, slots=True)
class Node:
    """The node `number`, from 1."""

    number: int
    layout: Layout
    daemons: Daemons

    @property
    def name(self) -> str:
        """As the API server knows it."""
        return f"node{self.number}"

    @property
    def disk(self) -> Path:
        """What it keeps."""
        return self.layout.node(self.name)

    @property
    def group(self) -> ControlGroup:
        """The control group of all that its kubelet starts."""
        return ControlGroup(f"hotplate-{self.name}")

    @property
    def parts(self) -> tuple[str, str, str]:
        """The names of its daemons, in the order in which they start."""
        return f"{self.name}-containerd", f"{self.name}-proxy", f"{self.name}-kubelet"

    def ensure(self) -> Iterator[str]:
        """Starts what does not run; tells what it started."""
        machine = Lan(self.daemons).ensure_machine(self.name, node_address(self.number))
        self._mount(machine)
        self.group.make()
        containerd, proxy, kubelet = self.parts
        if self._start_containerd(machine):
            yield f"{containerd} started"
        if start_proxy(self.layout, self.daemons, proxy, self.name, machine):
            yield f"{proxy} started"
        if self._start_kubelet(machine):
            yield f"{kubelet} started"

    def load(self, archive: Archive) -> bool:
        """Takes the image over unless it has been taken over already; whether it was."""
        mark = self.disk / "images" / archive.place.stem
        if mark.exists() and mark.read_text() == archive.digest:
            return False
        self._ctr("images", "import", "--no-unpack", str(archive.place))
        write(mark, archive.digest)
        return True

    def tell(self, number: signal.Signals) -> None:
        """Sends a signal to all of it: kubelet, containerd, and every process of its pods."""
        for part in reversed(self.parts):
            with contextlib.suppress(TestClusterError):
                self.daemons.tell(part, number)
        self._signal_pods(number)

    def kill(self) -> None:
        """Kills all of it, as when its power fails; its disk and its link stay."""
        for part in reversed(self.parts):
            self.daemons.end(part, signal.SIGKILL)
        deadline = time.monotonic() + _KILLED_WITHIN_S
        while list(self._processes()):
            if time.monotonic() > deadline:
                raise TestClusterError(f"processes of {self.name} do not end")
            self._signal_pods(signal.SIGKILL)
            time.sleep(_LOOK_EVERY_S)

    def remove(self) -> None:
        """Ends it, and leaves no process, mount, link or control group."""
        self.kill()
        self.daemons.end(f"{self.name}-machine", signal.SIGKILL)
        self.group.remove()
        shutil.rmtree(self.disk, ignore_errors=True)

    def _signal_pods(self, number: signal.Signals) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> Iterator[int]:
        yield from self._shims()
        yield from self.group.pids()

    def _shims(self) -> Iterator[int]:
        """They live outside the pods' control group; the socket that they serve tells whose."""
        address = str(self._socket).encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" in command[0] and address in command:
                    yield int(process.name)

    @property
    def _socket(self) -> Path:
        return Path("/run/containerd") / f"{self.name}.sock"

    def _mount(self, machine: int) -> None:
        binds = []
        for place in _OWN:
            Path(place).mkdir(parents=True, exist_ok=True)
            (own := self.disk / Path(place).name).mkdir(parents=True, exist_ok=True)
            binds.append(f"mount --bind {own} {place}")
        script = _MOUNTING.format(name=self.name, binds="\n".join(binds))
        _enter(machine, "sh", "-c", script)

    def _start_containerd(self, machine: int) -> bool:
        networks = self.disk / "cni"
        write(networks / "10-pods.conflist", json.dumps(_pod_networks(self.number, self.disk)))
        config = self.disk / "containerd.toml"
        write(
            config,
            _CONTAINERD.format(
                disk=self.disk,
                socket=self._socket,
                image=image_name("pause"),
                programs=_CNI_PROGRAMS,
            ),
        )
        program = shutil.which("containerd") or "containerd"
        started = self.daemons.ensure(
            self.parts[0], [program, f"--config={config}"], inside=machine, files=[config]
        )
        if started:
            self._await_containerd()
        return started

    def _await_containerd(self) -> None:
        for _ in range(100):
            with contextlib.suppress(TestClusterError):
                self._ctr("version")
                return
        raise TestClusterError(f"{self.parts[0]}: {self.daemons.last_lines(self.parts[0])}")

    def _ctr(self, *arguments: str) -> None:
        machine = self.daemons.find(f"{self.name}-machine")
        if machine is None:
            raise TestClusterError(f"{self.name} does not run; start it before")
        _enter(machine.pid, "ctr", f"--address={self._socket}", "--namespace=k8s.io", *arguments)

    def _start_kubelet(self, machine: int) -> bool:
        authority = Authority(self.layout.secrets)
        kubeconfig = write_kubeconfig(
            self.layout, self.disk / "kubeconfig", f"system:node:{self.name}", "system:nodes"
        )
        served, key = authority.issue(self.name, hosts=[self.name, node_address(self.number)])
        config = self.disk / "kubelet.yaml"
        write(
            config,
            yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "authentication": {
                        "anonymous": {"enabled": False},
                        "webhook": {"enabled": False},
                        "x509": {"clientCAFile": str(authority.certificate)},
                    },
                    "authorization": {"mode": "AlwaysAllow"},
                    "cgroupDriver": "cgroupfs",
                    "cgroupRoot": f"/{self.group.name}",
                    "clusterDNS": [DNS_ADDRESS],
                    "clusterDomain": "cluster.local",
                    "containerRuntimeEndpoint": f"unix://{self._socket}",
                    "enforceNodeAllocatable": [],
                    "failCgroupV1": False,
                    "failSwapOn": False,
                    "imageGCHighThresholdPercent": 100,
                    "evictionHard": {"memory.available": "200Mi", "nodefs.available": "2%"},
                    "nodeStatusReportFrequency": "1m",
                    "syncFrequency": "10s",
                    "volumeStatsAggPeriod": "10s",  # how long a pod may go on with a full disk
                    "tlsCertFile": str(served),
                    "tlsPrivateKeyFile": str(key),
                }
            ),
        )
        argv = [
            str(self.layout.binaries / "kubelet"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={node_address(self.number)}",
            "--root-dir=/var/lib/kubelet",
        ]
        return self.daemons.ensure(self.parts[2], argv, inside=machine, files=[config, kubeconfig])


def start_proxy(layout: Layout, daemons: Daemons, name: str, node: str, machine: int) -> bool:
    """Starts kube-proxy in a machine, as that of `node`, unless it runs; whether it was started."""
    folder = layout.home / "proxies" / name
    kubeconfig = write_kubeconfig(layout, folder / "kubeconfig", "admin", "system:masters")
    config = folder / "config.yaml"
    write(
        config,
        yaml.safe_dump(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "nftables",
                "clusterCIDR": POD_NETWORK,
                "detectLocalMode": "ClusterCIDR",
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "hostnameOverride": node,
                "conntrack": {"maxPerCore": 0},
            }
        ),
    )
    argv = [str(layout.binaries / "kube-proxy"), f"--config={config}"]
    return daemons.ensure(name, argv, inside=machine, files=[config])


def _pod_networks(number: int, disk: Path) -> dict[str, Any]:
    """Pods keep their addresses on the way to other nodes, so no masquerading."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": pod_network(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(disk / "addresses"),
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


# Without CAP_SYS_RESOURCE runc cannot lower what the kernel's killer thinks of a process.
_CONTAINERD = """\
version = 2
root = "{disk}/containerd"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{programs}"
conf_dir = "{disk}/cni"
"""


def _enter(pid: int, *command: str) -> None:
    entering = ["nsenter", f"--target={pid}", "--net", "--mount", "--", *command]
    done = subprocess.run(entering, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestClusterError(f"{' '.join(command[:3])}: {done.stderr.strip()}")
