"""All that lies in a blob store, whose it is, and how it is removed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hotplate.cache.store.paths import CLAIM, DIGEST, NOTE, blob_path, manifest_path, note_path
from hotplate.cache.store.storage import Storage, StoredObject


@dataclass(frozen=True)
class StoredNote:
    """A note, with what it says."""

    stored: StoredObject
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Listing:
    """All that lies in a blob store."""

    manifests: Mapping[str, StoredObject]
    """By digest, as are blobs."""
    blobs: Mapping[str, StoredObject]
    notes: Mapping[str, StoredNote]
    """By name."""
    uploads: Mapping[str, StoredObject]
    """By id: the bytes of all parts, and when the last one was written."""
    incoming: Mapping[str, StoredObject]
    """What is being written, or was when its writer was killed."""


class StoreContents:
    """Those of one storage. What removes is to be called within a removal."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def claim(self) -> dict[str, Any] | None:
        """What `hotplate.json` says: whose store this is; None = nobody's yet."""
        data = self._storage.read(CLAIM)
        return None if data is None else dict(json.loads(data))

    def put_claim(self, content: Mapping[str, Any]) -> float:
        """Makes it somebody's; when that was, Unix seconds by the storage's clock."""
        with self._storage.create() as upload:
            upload.write(json.dumps(content, indent=1).encode())
            upload.close()
            upload.publish(CLAIM)
        return self._storage.modified_at(CLAIM)

    def listing(self) -> Listing:
        """All that is there."""
        manifests = self._storage.objects("manifests").items()
        return Listing(
            _digests_of((name.removesuffix(".json"), found) for name, found in manifests),
            _digests_of(self._storage.objects_below("blobs").items()),
            self.notes(),
            dict(self._uploads()),
            self._storage.objects("incoming"),
        )

    def notes(
        self, known: Mapping[str, StoredNote] = MappingProxyType({})
    ) -> dict[str, StoredNote]:
        """All that are there; one of `known` that was not written since is not read again."""
        return dict(self._notes(known))

    def remove_manifest(self, digest: str) -> None:
        self._storage.remove(manifest_path(digest))

    def remove_blob(self, digest: str) -> None:
        self._storage.remove(blob_path(digest))

    def remove_note(self, name: str) -> None:
        self._storage.remove(note_path(name))

    def remove_upload(self, upload_id: str) -> None:
        self._storage.remove_folder(f"parts/{upload_id}")

    def remove_incoming(self, name: str) -> None:
        self._storage.remove(f"incoming/{name}")

    def _notes(self, known: Mapping[str, StoredNote]) -> Iterator[tuple[str, StoredNote]]:
        for kind in ("environments", "compiled"):
            for file, found in self._storage.objects(kind).items():
                name = f"{kind}/{file.removesuffix('.json')}"
                if not NOTE.fullmatch(name):
                    continue
                if name in known and known[name].stored == found:
                    yield name, known[name]
                else:
                    yield name, StoredNote(found, self._note(name))

    def _note(self, name: str) -> Mapping[str, Any]:
        content = None
        with suppress(ValueError):  # nobody can read it, so it names nothing
            content = json.loads(self._storage.read(note_path(name)) or b"")
        return content if isinstance(content, dict) else {}

    def _uploads(self) -> Iterator[tuple[str, StoredObject]]:
        for upload in self._storage.folders("parts"):
            parts = self._storage.objects(f"parts/{upload}").values()
            size_bytes = sum(part.size_bytes for part in parts)
            latest = max((part.modified_at for part in parts), default=0.0)
            yield upload, StoredObject(size_bytes, latest)


def _digests_of(found: Iterable[tuple[str, StoredObject]]) -> dict[str, StoredObject]:
    """Whatever else lies there is a stranger's."""
    return {name: stored for name, stored in found if DIGEST.fullmatch(name)}
