"""Where the services of one bento reach each other; pure.

An inner service is called through the gateway, where its requests queue. On one machine each has a
port of the gateway's; where names lead to the gateway, its name is enough.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from hotplate.deploy.workload import WorkloadKey


class InnerAddresses(Protocol):
    """As whoever puts the engine together says."""

    @property
    def need_ports(self) -> bool:
        """Whether each such service has a port of its own, which the store gives it."""

    def of(self, key: WorkloadKey, services: Collection[str], port: int) -> str:
        """HOST:PORT, or the host alone by which the gateway's internal address tells whose the
        requests are; `services` are the names of all of its revision, `port` is the service's own,
        0 where it has none."""


@dataclass(frozen=True)
class AtPorts:
    """On one machine."""

    host: str = "127.0.0.1"
    need_ports: bool = True

    def of(self, key: WorkloadKey, services: Collection[str], port: int) -> str:
        return f"{self.host}:{port}"


THIS_MACHINE = AtPorts()
