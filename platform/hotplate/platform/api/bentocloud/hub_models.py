"""The models at hubs that a bento names, looked at before it is deployed."""

from __future__ import annotations

import asyncio

from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.errors import Invalid
from hotplate.platform.store.records import Artifact
from hotplate.serving.replica.bento import hub_models
from hotplate.serving.replica.description import read_description
from hotplate.serving.replica.errors import BentoUnusable


class HubModels:
    """Knows the hubs that models of a bento may stay at instead of being uploaded."""

    def __init__(self, blobs: BlobStore, hubs: Hubs) -> None:
        self._blobs = blobs
        self._hubs = hubs

    async def check(self, bento: Artifact) -> None:
        """Raises Invalid for a bento of which the node's agent could not bring the models."""
        try:
            await asyncio.to_thread(self._look, bento)
        except (BentoUnusable, ValueError) as error:
            raise Invalid(f"bento '{bento.tag}': {error}") from error

    def _look(self, bento: Artifact) -> None:
        """In the file that replicas start from: what the client has registered says as it likes."""
        entry = self._blobs.get_manifest(bento.files).get("bento.yaml")
        if entry is not None and entry.blob is not None:  # as it was when the bento was unpacked
            hub_models(read_description(b"".join(self._blobs.chunks(entry.blob))), self._hubs)
