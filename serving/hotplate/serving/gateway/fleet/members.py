"""Which gateways live, as one of them sees it, and which of them should own what. Pure.

Rendezvous hashing over the living gateways that serve a deployment decides which one owns it: a new
gateway gets its share, and the share of one that is gone is spread over all others. How gateways
see each other is said below: on one machine by a folder (`membership.py`), else over the network
(`network.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.sockets.proof import Proof

RETIRES = "retires"
"""Stands in place of what a gateway serves."""


class OwnerLock:
    """The ownership of a deployment, until it is released."""

    def release(self) -> None:
        """Another gateway may own it."""


class FleetMembers:
    """One gateway and its peers."""

    def __init__(self, gateway_id: str, folder: Path, secret: str) -> None:
        """`gateway_id`: ids sort by age. `folder` has the files that say which slots are taken.
        `secret` is shared by the fleet's gateways; one with another secret does not belong to
        it."""
        self.id = gateway_id
        self.folder = folder
        self.proof = Proof(secret)
        self.changes = 0
        """How often the living gateways, or what they serve, have changed."""
        self._serving: Mapping[str, frozenset[str]] = {}
        """The other living gateways, oldest first, and what they serve, as was last seen."""
        self._own: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What is the same for all gateways of the fleet, and for no others."""
        raise NotImplementedError

    @property
    def peers(self) -> Sequence[str]:
        """The other living gateways, oldest first."""
        return list(self._serving)

    @property
    def staying(self) -> Sequence[str]:
        """The others that do not retire, oldest first."""
        return [member for member, published in self._serving.items() if RETIRES not in published]

    def rightful_owner(self, deployment: str) -> str:
        """The gateway that should own the deployment, of those that serve it; empty = there is
        none."""
        name = file_name(deployment)
        members = [member for member, served in self._serving.items() if name in served]
        if name in self._own:
            members.append(self.id)
        return rendezvous_owner(deployment, members)

    # Each kind in its own way

    def look(self) -> Sequence[str]:
        """Checks which gateways live and what they serve; returns the others, oldest first."""
        raise NotImplementedError

    def serve(self, deployments: Iterable[str]) -> None:
        """Publishes what this gateway may own."""
        raise NotImplementedError

    def retire(self) -> None:
        """Publishes that this gateway no longer owns anything."""
        raise NotImplementedError

    def lock_owner(self, deployment: str) -> OwnerLock | None:
        """The ownership, if no gateway has it."""
        raise NotImplementedError

    def owner(self, deployment: str) -> str:
        """The other gateway that claims the ownership, which may have ended; empty = none does."""
        raise NotImplementedError

    def address_of(self, gateway: str) -> str:
        """Where the gateway takes the others' requests: a socket's path, or `host:port`."""
        raise NotImplementedError

    def next_owner(self, deployment: str) -> str:
        """The rightful owner if this gateway was none, where it can have descriptors of this one's
        connections; empty = none can."""
        return ""

    def backup_socket_of(self, gateway: str) -> Path:
        """Where it takes them."""
        raise NotImplementedError

    def is_silent(self, gateway: str) -> bool:
        """Whether it has gone without its connections having ended."""
        return False

    def leave(self) -> None:
        """Leaves the fleet, and releases what it owns."""
        raise NotImplementedError


def file_name(text: str) -> str:
    """A file name of fixed length for any text."""
    return blake2b(text.encode(), digest_size=12).hexdigest()


def rendezvous_owner(deployment: str, gateways: Iterable[str]) -> str:
    """The gateway that should own the deployment (rendezvous hashing); empty = there are none. A
    version's route goes to the owner of its deployment, which chooses the version."""
    key = deployment.partition(VERSION)[0]

    def weight(gateway: str) -> bytes:
        return blake2b(f"{gateway}\0{key}".encode(), digest_size=8).digest()

    return max(gateways, key=weight, default="")
