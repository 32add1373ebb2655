"""What is to be served: one service of one revision, with all that its replicas need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, order=True)
class WorkloadKey:
    """One service of one revision of one deployment."""

    organization: str
    deployment: str
    revision: int
    service: str

    def __str__(self) -> str:
        return f"{self.organization}/{self.deployment}@{self.revision}/{self.service}"


@dataclass(frozen=True)
class Resources:
    """An amount of CPUs, memory and GPUs; 0 CPUs means best effort (shares, not counted)."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0


@dataclass(frozen=True)
class Model:
    """A BentoML model that the bento names; its files are a manifest in the blob store."""

    name: str
    version: str
    manifest: str
    """Digest of the cache manifest of the model's files."""


@dataclass(frozen=True)
class Workload:
    """All that is needed to run replicas of one service of one revision; immutable."""

    key: WorkloadKey
    bento_name: str
    bento_version: str
    bento_manifest: str
    """Digest of the cache manifest of the bento's files (bento.yaml, src/, env/ …)."""
    models: tuple[Model, ...] = ()
    entry: bool = True
    """Whether this is the bento's entry service."""
    owner: str = ""
    """What its organization is known by where something is kept for it: no other one ever is, also
    none that gets its name later. Empty = its name, as in records that an older engine has left."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the replica that the deployment gives it, or its service there."""
    secrets: tuple[str, ...] = ()
    """The names of its organization's secrets that it gets; their values are asked for at each
    start."""
    cloud: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell a replica of its deployment; they go over `env`."""
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    """BentoML service configuration laid over the author's (`config_overrides`)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The service's configuration as the author wrote it (`bento.yaml` services[].config)."""
    depends: Mapping[str, str] = field(default_factory=dict)
    """URL per service that this one depends on, with the secret that opens it."""
    calls: tuple[str, ...] = ()
    """Names of the deployments of its organization that its bento names."""
    resources: Resources = Resources()
    instance_type: str = ""
    """The size that its user named, of those that are offered; empty = none."""
    workers: int = 1
    cold_start_timeout_s: float = 1800.0
    """From placed to ready; then the attempt has failed."""
    stop_grace_s: float = 30.0
    """From SIGTERM to SIGKILL."""
    request_timeout_s: float = 60.0
    """How long one of its requests may take: a replica that is unready and silent for longer is
    ended."""

    @property
    def owned_by(self) -> str:
        """Whose environments, packages, compiled code and warm processes its replicas use."""
        return self.owner or self.key.organization

    @property
    def manifests(self) -> tuple[str, ...]:
        """Digests of the manifests of all the files that it needs."""
        return (self.bento_manifest, *(model.manifest for model in self.models))
