"""What the blob store's notes say of the environments of pods: `environments/<key>`.

The node's agent writes a note when it publishes what a build has made, with what the build's ticket
says of it; here is added which bentos use it, and how the build went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.contents import StoredNote
from hotplate.serving.replica.environments.registry import BENTOS_KEPT
from hotplate.serving.replica.pods.known_environment import Asker

_KIND = "environments"
DIGEST_DIGITS = 32


@dataclass(frozen=True)
class NotedEnvironment:
    """An environment as its note says."""

    digest: str
    manifest: str
    image: str
    owner: str
    bentos: frozenset[str]


@dataclass(frozen=True)
class NotedFailure:
    """Why an environment could not be built, which no other try would have helped."""

    digest: str
    owner: str
    bentos: frozenset[str]
    sentence: str
    log: tuple[str, ...]
    """The last lines of its build."""
    askers: frozenset[Asker]
    """The revisions that have waited for the build."""


def digest_of(owner: str, spec_digest: str, image: str) -> str:
    """What names an owner's environment on a cluster: what is built in another image is another."""
    return blake3(f"{owner} {spec_digest} {image}".encode()).hexdigest()[:DIGEST_DIGITS]


def name_of(digest: str) -> str:
    """The name of its note."""
    return f"{_KIND}/{digest}"


def about(owner: str, digest: str, image: str, bento: str) -> dict[str, Any]:
    """What its note says beside its manifest, from the beginning."""
    return {"organization": owner, "digest": digest, "image": image, "bentos": [bento]}


def noted(note: Mapping[str, Any]) -> NotedEnvironment | None:
    """The environment that a note is of; None where it is not that of pods, or cannot be read."""
    names = [note.get(name) for name in ("digest", "manifest", "image", "organization")]
    bentos = note.get("bentos")
    if not all(isinstance(name, str) and name for name in names) or not isinstance(bentos, list):
        return None
    digest, manifest, image, owner = map(str, names)
    return NotedEnvironment(digest, manifest, image, owner, frozenset(map(str, bentos)))


def noted_failure(note: Mapping[str, Any]) -> NotedFailure | None:
    """The failure that a note is of; None where it is not one, or cannot be read."""
    if "manifest" in note or "failed" not in note:
        return None
    try:
        return NotedFailure(
            str(note["digest"]),
            str(note["organization"]),
            frozenset(map(str, note["bentos"])),
            str(note["failed"]),
            tuple(map(str, note["log_tail"])),
            frozenset(Asker(str(a), str(b), int(c)) for a, b, c in note["askers"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


class EnvironmentNotes:
    """Those in one blob store. Every method asks it, and raises `CacheError`."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._listed: dict[str, StoredNote] = {}

    def use(self, digest: str, bentos: Sequence[str]) -> NotedEnvironment | None:
        """The environment of that digest, if there is one; its note says from now on that these
        bentos use it, so that nobody removes it."""
        return self._change(digest, bentos, {})

    def built(
        self, digest: str, bentos: Sequence[str], build: Mapping[str, Any]
    ) -> NotedEnvironment | None:
        """The same of one that was just built; `build` is how that went."""
        return self._change(digest, bentos, build)

    def failure(self, digest: str) -> NotedFailure | None:
        """Why there is none of that digest, as far as somebody has noted it."""
        note = self._blobs.get_note(name_of(digest))
        return None if note is None else noted_failure(note)

    def failed(self, failure: NotedFailure) -> None:
        """Keeps why it could not be built, so that no later control plane tries it for the same
        revisions; in place of an earlier failure, and of no environment."""
        name = name_of(failure.digest)
        with self._blobs.hold():
            if noted(self._blobs.get_note(name) or {}) is None:
                self._blobs.put_note(
                    name,
                    {
                        "organization": failure.owner,
                        "digest": failure.digest,
                        "bentos": sorted(failure.bentos)[-BENTOS_KEPT:],
                        "failed": failure.sentence,
                        "log_tail": list(failure.log),
                        "askers": [list(asker) for asker in sorted(failure.askers)],
                    },
                )

    def all(self) -> dict[str, StoredNote]:
        """Notes of environments, those of pods among them, by name."""
        listed = self._blobs.contents.notes(self._listed)
        self._listed = {name: note for name, note in listed.items() if name.startswith(_KIND)}
        return self._listed

    def size_bytes(self, manifest: str) -> int:
        return self._blobs.get_manifest(manifest).size_bytes

    def _change(
        self, digest: str, bentos: Sequence[str], more: Mapping[str, Any]
    ) -> NotedEnvironment | None:
        name = name_of(digest)
        with self._blobs.hold():
            note = self._blobs.get_note(name)
            if note is None or (found := noted(note)) is None:
                return None
            new = [bento for bento in bentos if bento not in found.bentos]
            if new or more:
                kept = [*note["bentos"], *new][-BENTOS_KEPT:]
                self._blobs.put_note(name, {**note, **more, "bentos": kept})
            return found
