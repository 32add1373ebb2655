"""What is asked of whoever has the Python environments of pods: that they exist, as manifests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hotplate.deploy.workload import Workload
from hotplate.serving.replica.bento import Bento
from hotplate.serving.replica.secret_values import SecretSet


@dataclass(frozen=True)
class PodEnvironment:
    """An environment that is ready, for pods."""

    digest: str
    manifest: str
    """Of its files."""
    image: str
    """The runtime image that it was built with, and runs on."""
    owner: str
    """Whose it is, as its note says."""


class Environments(Protocol):
    """The environments of all bentos."""

    async def of(self, workload: Workload, bento: Bento, secrets: SecretSet) -> PodEnvironment:
        """The environment of the workload's bento; `secrets` are for its build. Quick: it is asked
        at every look.

        Raises `BeingPrepared` while it is built, and `EnvironmentFailed`.
        """

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another answer may be had from now on."""
