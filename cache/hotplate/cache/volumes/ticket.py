"""What a pod's volume may show: signed by the control plane, checked by the node's agent; pure.

Whoever may write a pod may write anything into its volume's attributes. So a ticket says for which
namespace and ServiceAccount it is, and kubelet tells the agent those of the pod that mounts it. It
has no time in it: equal tickets are equal texts, and a Deployment that names one does not change.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from hotplate.cache.errors import TicketRefused

TICKET = "hotplate.dev/ticket"
"""The attribute of a volume that has it."""
DRIVER = "agent.hotplate.dev"
"""The CSI driver of the nodes' agents."""
FOLDER = "/hotplate"
"""Where a pod has its volume."""
USER = 10001
"""The user and group of every pod that mounts one."""
MOST_CHARACTERS = 64 << 10
"""The longest text that is looked at: anybody may have written it."""

_DIGEST = re.compile("[0-9a-f]{64}")


class Use(StrEnum):
    """What a volume is for."""

    REPLICA = "replica"
    BUILD = "build"


@dataclass(frozen=True)
class VolumeModel:
    """A model, which the volume shows as `models/NAME/VERSION`."""

    name: str
    version: str
    manifest: str

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_name(self.version)
        _check_digest(self.manifest)


@dataclass(frozen=True)
class Ticket:
    """What one volume shows, and who may mount it."""

    namespace: str
    service_account: str
    organization: str
    deployment: str
    """"" in a build's, as in `service`; `revision` is 0 there."""
    revision: int
    service: str
    use: Use
    bento: str
    """Digest of its manifest."""
    environment: str = ""
    """The same of the environment; "" in a build's, whose pod has an `emptyDir` named `env`
    there."""
    models: tuple[VolumeModel, ...] = ()
    owner: str = ""
    """What the organization is known by for ever: no later one of its name has it."""
    note: str = ""
    """A build's: the blob store's note under which its result is published."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """A build's: what else stands in that note. Its `interpreter` is where `bin/python` of the
    result has to lead."""

    def __post_init__(self) -> None:
        if not (self.namespace and self.service_account):
            raise ValueError("it names nobody who may mount it")
        _check_digest(self.bento)
        if self.use is Use.REPLICA:
            _check_digest(self.environment)
        elif self.environment or not self.note:
            raise ValueError("a build has no environment yet, and a note for the one that it makes")

    @property
    def manifests(self) -> frozenset[str]:
        """Digests of all that the volume shows."""
        shown = {self.bento, *(model.manifest for model in self.models)}
        return frozenset(shown | {self.environment} if self.environment else shown)


def key_of(cluster_token: str) -> bytes:
    """The key that signs tickets: whoever has the cluster's token has it."""
    return _digest(cluster_token.encode(), TICKET.encode())


def signed(ticket: Ticket, key: bytes) -> str:
    """The ticket as text."""
    content = json.dumps(asdict(ticket), sort_keys=True, separators=(",", ":")).encode()
    return f"{_encoded(content)}.{_encoded(_digest(key, content))}"


def opened(text: str, key: bytes) -> Ticket:
    """The ticket of a text. Raises TicketRefused, whose sentence shows nothing of it."""
    if not text:
        raise TicketRefused(f"the volume has no ticket: its attribute {TICKET} is empty")
    if len(text) > MOST_CHARACTERS:
        raise TicketRefused(
            f"the volume's ticket has {len(text)} characters (limit {MOST_CHARACTERS})"
        )
    try:
        content, signature = (_decoded(part) for part in text.split("."))
        genuine = hmac.compare_digest(_digest(key, content), signature)
    except ValueError:
        genuine = False
    if not genuine:
        raise TicketRefused("the volume's ticket was not signed by this cluster's control plane")
    try:
        return from_json(json.loads(content))
    except (ValueError, KeyError, TypeError):
        raise TicketRefused(
            "the volume's ticket is not one that this agent understands; update the agent"
        ) from None


def from_json(value: Mapping[str, Any]) -> Ticket:
    """The ticket that `asdict` made this of. Raises ValueError, KeyError, TypeError."""
    models = tuple(VolumeModel(**model) for model in value["models"])
    return Ticket(**{**value, "use": Use(value["use"]), "models": models})


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError("it is no name of a folder")


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise ValueError("it is no digest of a manifest")


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
