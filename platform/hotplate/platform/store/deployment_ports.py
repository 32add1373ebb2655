"""Which ports deployments and their services have, and which one is next."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from hotplate.platform.errors import PortsExhausted
from hotplate.platform.store.tables import DeploymentRow, RevisionRow

PORTS = range(7100, 8000)
"""Where deployments get their ports, unless the store is told otherwise."""

AllocatePort = Callable[[set[int]], int]


def lowest_free_port(taken: set[int]) -> int:
    """The lowest of `PORTS` that is not taken. Raises PortsExhausted."""
    for port in PORTS:
        if port not in taken:
            return port
    raise PortsExhausted(
        f"ports {PORTS.start}-{PORTS.stop - 1}: all {len(PORTS)} are taken; delete a deployment"
    )


def taken_ports(session: Session) -> set[int]:
    """Those of all deployments, and of the services of their revisions."""
    taken = set(session.scalars(select(DeploymentRow.port)))
    for ports in session.scalars(select(RevisionRow.ports)):
        taken.update(ports.values())
    return taken


def count_up(taken: set[int]) -> int:
    """A number for each where nothing listens at it, since all deployments share an address."""
    return max(taken, default=0) + 1
