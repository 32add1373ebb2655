"""What a replica's pod is made of; an engine asks its runtime for it.

The counterpart of a local `Command`: the engine does not know what serves, only where it is told
what to do (`job`), what it is given (`env`, `files`) and where it says that it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hotplate.deploy.phases import Phase
from hotplate.deploy.workload import Workload


@dataclass(frozen=True)
class PodSpec:
    """Of the pods of one workload."""

    image: str
    """A runtime image: it has the bento's Python, and nothing of the bento."""
    command: Sequence[str]
    job: Mapping[str, Any]
    """What the pod reads from `job.json` of its folder; it has no secret."""
    container_env: Mapping[str, str] = field(default_factory=dict)
    """Variables that its container is started with; anybody may read them."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Its variables, secrets among them."""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Contents of secret files by paths below `$BENTOML_HOME`."""
    ready_path: str = "/readyz"
    """Where `GET` answers 200 when the replica may have requests."""
    ticket: str = ""
    """What its volume is given out for, signed."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    pull_policy: str = "IfNotPresent"
    pull_secrets: Sequence[str] = ()
    """Names of Secrets of its namespace, with which its image is pulled."""


@dataclass(frozen=True)
class PodReport:
    """What the program of a pod says of its start. It is that of a bento's author."""

    phases: Sequence[Phase]
    """From and to how many seconds after it was started, by one clock of its own."""
    about: Mapping[str, Any] | None = None
    """What else it says of itself."""


class PodRuntime(Protocol):
    """What BentoML (or another framework) needs to become a pod."""

    report_path: str
    """Where `GET` answers what a pod says of its start; empty = nowhere."""

    async def pod_spec(self, workload: Workload, service_account: str, namespace: str) -> PodSpec:
        """What its pods are made of. Quick: it is asked at every look, and the same state gives an
        equal answer.

        Raises `BeingPrepared` while something of it is made, and `PrepareFailed`.
        """

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another answer may be had from now on."""

    def reported(self, content: bytes) -> PodReport | None:
        """What stands in the answer at `report_path`; None if nothing that can be believed."""
