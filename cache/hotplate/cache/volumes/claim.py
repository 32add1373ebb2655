"""What kubelet asks for on behalf of a pod, checked; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hotplate.cache.errors import BadVolume, TicketRefused
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.ticket import TICKET, Ticket, opened

_POD = "csi.storage.k8s.io/pod."
_ACCOUNT = "csi.storage.k8s.io/serviceAccount.name"
_EPHEMERAL = "csi.storage.k8s.io/ephemeral"
"""Attributes that kubelet adds to those of the pod, over whatever the pod says."""

_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Claim:
    """A volume that a pod may have."""

    volume: str
    """Its name, which kubelet gives."""
    target: Path
    """Where kubelet wants it."""
    ticket: Ticket


def pod_of(attributes: Mapping[str, str]) -> str:
    """The pod's name, as kubelet tells it."""
    return f"{attributes.get(_POD + 'namespace', '')}/{attributes.get(_POD + 'name', '')}"


def checked(
    volume: str, target: str, attributes: Mapping[str, str], kubelet: Kubelet, key: bytes
) -> Claim:
    """The claim. Raises TicketRefused, BadVolume; nothing of a ticket is shown."""
    name, place = checked_place(volume, target, kubelet)
    if attributes.get(_EPHEMERAL) != "true":
        raise BadVolume(
            "the agent gives volumes to pods only (volumeLifecycleModes: Ephemeral, "
            "podInfoOnMount: true); there is no PersistentVolume of it"
        )
    ticket = opened(attributes.get(TICKET, ""), key)
    found = (attributes.get(_POD + "namespace"), attributes.get(_ACCOUNT))
    if found != (ticket.namespace, ticket.service_account):
        raise TicketRefused(
            f"the volume's ticket is not for pods of the namespace {found[0]!r} with the "
            f"ServiceAccount {found[1]!r}: it was copied from another one"
        )
    return Claim(name, place, ticket)


def checked_place(volume: str, target: str, kubelet: Kubelet) -> tuple[str, Path]:
    """The volume's name and its place. Raises BadVolume for any that kubelet would not ask for."""
    if not _NAME.fullmatch(volume):
        raise BadVolume(f"{volume[:200]!r} is no name of a volume")
    place = Path(target)
    try:
        kubelet.pod_folder(place)
    except ValueError:
        raise BadVolume(f"{target} is not below {kubelet.pods}; check --kubelet") from None
    return volume, place
