"""A build's result on its way to the blob store: blobs, then their manifest, then the note that
names it. Killed before the last, nobody sees any of it."""

from __future__ import annotations

from hotplate.cache.errors import ChunkCorrupt, UnknownManifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tiers.disk import DiskTier
from hotplate.cache.volumes.taking.take_over import TakenTree
from hotplate.cache.volumes.taking.tasks import Beat
from hotplate.cache.volumes.taking.uploads import BlobUploads
from hotplate.cache.volumes.ticket import Ticket


class Publication:
    """One ticket's. Blocks; every method raises CacheError."""

    def __init__(self, store: BlobStore, ticket: Ticket) -> None:
        self._store = store
        self._ticket = ticket

    def earlier(self) -> str | None:
        """The manifest that is published already, by whichever build."""
        note = self._store.get_note(self._ticket.note)
        digest = str(note.get("manifest", "")) if note is not None else ""
        if not digest:
            return None
        try:
            return self._store.get_manifest(digest).digest
        except (UnknownManifest, ChunkCorrupt):
            return None  # it was removed: this build makes it anew

    def publish(self, tree: TakenTree, disk: DiskTier, beat: Beat) -> str:
        """Stores the blobs, which the disk has, and the rest; the manifest that is published from
        now on, another build's if that was first. `beat` is called again and again."""
        with self._store.hold() as hold:

            def beating() -> None:
                beat()
                hold.renew()

            BlobUploads(self._store, disk, beating).send(tree.blobs)
            if (earlier := self.earlier()) is not None:
                return earlier
            digest = self._store.put_manifest(tree.manifest)
            self._store.put_note(self._ticket.note, {**self._ticket.about, "manifest": digest})
            return digest
