"""The secrets of a workload: asked for at each start of a replica, and kept nowhere in clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blake3 import blake3


@dataclass(frozen=True)
class SecretValue:
    """One value, and where it goes."""

    key: str
    value: str = field(repr=False)
    file: str = ""
    """Its path below `$BENTOML_HOME`; "" for a variable."""
    builds: bool = False
    """Whether the build of the environment gets it."""
    runs: bool = True
    """Whether replicas get it."""
    version: str = ""
    """Another one after each change of the value; it tells nothing of it."""


class SecretSource(Protocol):
    """Where the secrets of organizations are kept."""

    async def values(self, organization: str, names: Sequence[str]) -> Sequence[SecretValue]:
        """The values of these secrets of that organization, as they are now.

        Raises `PrepareFailed` where they cannot be had, with `no_room` while that may pass.
        """


class NoSecrets(SecretSource):
    """For workloads that name none."""

    async def values(self, organization: str, names: Sequence[str]) -> Sequence[SecretValue]:
        return ()


@dataclass(frozen=True)
class SecretSet:
    """What a build or a replica gets."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Contents by paths below `$BENTOML_HOME`."""
    digest: str = ""
    """Of whose they are, and of their versions; "" where there are none."""

    def __bool__(self) -> bool:
        return bool(self.digest)

    @property
    def texts(self) -> list[str]:
        """All values."""
        return [*self.env.values(), *self.files.values()]


def of_build(organization: str, values: Sequence[SecretValue]) -> SecretSet:
    """What the build of an environment gets."""
    return _set(organization, [each for each in values if each.builds])


def of_replica(organization: str, values: Sequence[SecretValue]) -> SecretSet:
    """What a replica gets."""
    return _set(organization, [each for each in values if each.runs])


def _set(organization: str, values: Sequence[SecretValue]) -> SecretSet:
    if not values:
        return SecretSet()
    parts = sorted(f"{each.key}\0{each.file}\0{each.version}" for each in values)
    digest = blake3("\0\0".join([organization, *parts]).encode()).hexdigest()
    return SecretSet(
        {each.key: each.value for each in values if not each.file},
        {each.file: each.value for each in values if each.file},
        digest,
    )
