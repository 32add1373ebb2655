"""What a control plane of a cluster keeps itself: nothing but what the blob store has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set

from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica.pods.job_environments import JobEnvironments
from hotplate.serving.replica.pods.overview import EnvironmentsOfPods


class KeptByJobs(EnvironmentsOfPods):
    """Environments that Jobs have built. They lie in the blob store and, as files, with agents,
    which drop by themselves what no volume shows."""

    def __init__(self, environments: JobEnvironments, blobs: BlobStore) -> None:
        super().__init__(environments, blobs)
        self._environments = environments

    def manifests(self) -> Set[str]:
        return self._environments.manifests()

    def notes(self) -> Set[str]:
        return self._environments.notes()

    async def sweep(
        self,
        wanted: Callable[[], Set[str] | None],
        spare: int,
        used_before: float,
        *,
        dry_run: bool = False,
    ) -> Mapping[str, int]:
        """Nothing is here; the collector removes notes that nobody wants."""
        return {}

    async def gone(self, owners: Callable[[], Awaitable[Set[str]]]) -> Sequence[str]:
        return ()

    async def forget(self, folders: Sequence[str]) -> None:
        """There are no folders."""


class NotKept:
    """Compiled code and copies of files: each agent keeps and drops its own."""

    def manifests(self) -> Set[str]:
        return frozenset()

    def notes(self) -> Set[str]:
        return frozenset()

    def forget(self, owners: Set[str]) -> None:
        """Nothing is here."""

    async def idle_s(self) -> Mapping[str, float]:
        return {}

    async def delete(self, manifest: str, idle_s: float) -> bool:
        return False
