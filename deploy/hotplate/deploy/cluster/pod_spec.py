"""What a replica's pod is made of; an engine asks its runtime for it.

The counterpart of a local `Command`: the engine does not know what serves, only where it is told
what to do (`job`), what it is given (`env`, `files`) and where it says that it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hotplate.deploy.workload import Workload


@dataclass(frozen=True)
class PodSpec:
    """Of the pods of one workload."""

    image: str
    """A runtime image: it has the bento's Python, and nothing of the bento."""
    command: Sequence[str]
    job: Mapping[str, Any]
    """What the pod reads from `job.json` of its volume; it has no secret."""
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


class PodRuntime(Protocol):
    """What BentoML (or another framework) needs to become a pod."""

    async def pod_spec(self, workload: Workload, service_account: str, namespace: str) -> PodSpec:
        """Raises `PrepareFailed`."""
