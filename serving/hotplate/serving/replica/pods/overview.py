"""What there is of the environments of pods, and the output of their builds. Does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.contents import StoredNote
from hotplate.serving.replica.environments.folder import SHARED, organization_folder
from hotplate.serving.replica.environments.overview import (
    BUILDING,
    FAILED,
    READY,
    EnvironmentView,
    log_tail,
)
from hotplate.serving.replica.inside.building.step import MOST_LOG_BYTES
from hotplate.serving.replica.pods.job_environments import JobEnvironments
from hotplate.serving.replica.pods.known_environment import KnownEnvironment
from hotplate.serving.replica.pods.notes import EnvironmentNotes, NotedFailure, noted, noted_failure


class PodsOverview:
    """Those of one installation."""

    def __init__(self, environments: JobEnvironments, blobs: BlobStore) -> None:
        self._environments, self._notes = environments, EnvironmentNotes(blobs)
        self._sizes: dict[str, int] = {}
        """By manifest; these never change."""

    def views(self, owners: Iterable[str]) -> list[EnvironmentView]:
        """All of these owners, those first that were used last. Raises `CacheError`."""
        wanted = set(owners)
        known = {each.digest: each for each in self._environments.known() if each.owner in wanted}
        found = dict(self._noted(wanted, known))
        for digest, each in known.items():
            if digest not in found and (each.task is not None or each.failure is not None):
                found[digest] = self._unbuilt(each)
        return sorted(found.values(), key=lambda view: (-view.used_at, view.owner, view.digest))

    def build_log(self, owners: Iterable[str], bento: str) -> tuple[EnvironmentView, str] | None:
        """The environment of these owners that a bento has used last, and the output of its build:
        all of it, or its last lines where an earlier control plane has followed it. None where
        there is none. Raises `CacheError`."""
        for view in self.views(owners):
            if bento in view.bentos:
                with suppress(OSError), self._log(view.digest).open("rb") as file:
                    return view, file.read(MOST_LOG_BYTES).decode(errors="replace")
                return view, "".join(f"{line}\n" for line in view.log_tail)
        return None

    def _noted(
        self, owners: set[str], known: Mapping[str, KnownEnvironment]
    ) -> Iterator[tuple[str, EnvironmentView]]:
        for stored in self._notes.all().values():
            found = noted(stored.content)
            failed = noted_failure(stored.content)
            if found is not None and found.owner in owners:
                yield found.digest, self._view(stored, known.get(found.digest))
            elif failed is not None and failed.owner in owners and failed.digest not in known:
                yield failed.digest, self._failure(stored, failed)

    def _failure(self, stored: StoredNote, failed: NotedFailure) -> EnvironmentView:
        """One that nobody asks for now."""
        return EnvironmentView(
            failed.owner,
            failed.digest,
            FAILED,
            failed.bentos,
            stored.stored.modified_at,
            0,
            None,
            None,
            log_tail(self._log(failed.digest)) or failed.log,
        )

    def _view(self, stored: StoredNote, known: KnownEnvironment | None) -> EnvironmentView:
        note = stored.content
        found = noted(note)
        assert found is not None
        return EnvironmentView(
            found.owner,
            found.digest,
            _state(known) if known is not None else READY,
            found.bentos,
            stored.stored.modified_at,
            self._size_bytes(found.manifest),
            _number(note.get("built_at")),
            _number(note.get("build_s")),
            log_tail(self._log(found.digest)) or tuple(map(str, note.get("log_tail") or ())),
        )

    def _unbuilt(self, known: KnownEnvironment) -> EnvironmentView:
        return EnvironmentView(
            known.owner,
            known.digest,
            _state(known),
            frozenset(known.bentos),
            known.changed_at.timestamp(),
            0,
            None,
            None,
            log_tail(self._log(known.digest)) or (known.failure.log if known.failure else ()),
        )

    def _size_bytes(self, manifest: str) -> int:
        if manifest not in self._sizes:
            try:
                self._sizes[manifest] = self._notes.size_bytes(manifest)
            except CacheError:
                return 0  # it has just gone
        return self._sizes[manifest]

    def _log(self, digest: str) -> Path:
        return self._environments.log(digest)


class EnvironmentsOfPods:
    """What routes about environments ask."""

    def __init__(self, environments: JobEnvironments, blobs: BlobStore) -> None:
        self.overview = PodsOverview(environments, blobs)

    def folders(self, owners: Iterable[str]) -> Mapping[str, str]:
        """What notes call these owners, with each; "" for what all of them share."""
        return {organization_folder(owner): owner for owner in owners} | {SHARED: ""}


def _state(known: KnownEnvironment) -> str:
    if known.task is not None and known.log:
        return BUILDING
    return FAILED if known.failure is not None else READY


def _number(said: Any) -> float | None:
    return float(said) if isinstance(said, int | float) else None
