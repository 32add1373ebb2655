"""Where the test cluster keeps what, and which addresses it has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

BRIDGE = "hotplate-lan"
HOST_ADDRESS = "10.201.0.254"
"""The host's on the bridge: the API server's, the DNS server's."""
PROXY_ADDRESS = "10.201.0.253"
"""The machine's through which the host reaches Services: no node, as those are killed and cut."""
NODE_NETWORK = "10.201.0.0/24"
POD_NETWORK = "10.200.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"
API_SERVICE_ADDRESS = "10.96.0.1"
API_PORT = 6443
ETCD_PORT = 12379
DNS_PORT = 10053
MOST_NODES = 9


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one test cluster, all below one folder."""

    home: Path = REPOSITORY / ".cluster"

    @property
    def kubeconfig(self) -> Path:
        """The admin's."""
        return self.home / "kubeconfig"

    def program(self, name: str) -> str:
        """One of what was built, or else of the machine's."""
        built = self.binaries / name
        return str(built) if built.exists() else name

    @property
    def audit_log(self) -> Path:
        """Every request to the API server, a JSON object a line."""
        return self.home / "audit.log"

    @property
    def binaries(self) -> Path:
        """Links to what was built."""
        return self.home / "bin"

    @property
    def images(self) -> Path:
        """OCI archives."""
        return self.home / "images"

    @property
    def logs(self) -> Path:
        """What each daemon wrote, a file each."""
        return self.home / "log"

    @property
    def daemons(self) -> Path:
        """Which daemons run, a record each."""
        return self.home / "daemons"

    @property
    def secrets(self) -> Path:
        """Keys, certificates and tokens."""
        return self.home / "secrets"

    @property
    def etcd(self) -> Path:
        """What the cluster knows."""
        return self.home / "etcd"

    def node(self, name: str) -> Path:
        """A node's disk."""
        return self.home / "nodes" / name

    @property
    def api(self) -> str:
        """The API server's address."""
        return f"https://{HOST_ADDRESS}:{API_PORT}"


def node_address(number: int) -> str:
    """The address of the node `number`, from 1."""
    return f"10.201.0.{number}"


def pod_network(number: int) -> str:
    """The addresses of the pods of the node `number`."""
    return f"10.200.{number}.0/24"


def user_cache(name: str) -> Path:
    """A folder of the user's for what is made once, however often the tree is cloned."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hotplate-test-cluster" / name
