"""How a gateway that runs in a pod reaches the API server of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ApiServer:
    """What Kubernetes gives to each pod."""

    url: str
    account: Path
    """The folder of its service account: `token`, which is renewed there, and `ca.crt`."""
