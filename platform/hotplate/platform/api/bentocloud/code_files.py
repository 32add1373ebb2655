"""The files of a code space: `bentoml code` sends them, and each change starts what it runs anew.

The bytes go to the blob store first, then the manifest of all files, and last one transaction that
keeps their rows and begins a revision: a kill in between leaves what was there, and the client was
told nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from aiohttp import web

from hotplate.cache.manifest import Blob, Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.bentocloud.archives.unpacking import holding
from hotplate.platform.api.bentocloud.deployments import named_deployment, revision_draft
from hotplate.platform.api.bentocloud.rollout_watchers import RolloutWatchers
from hotplate.platform.api.web.requests import body, caller, check_cluster, organization
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Conflict, Invalid
from hotplate.platform.log_format import events
from hotplate.platform.spec.code_files import (
    BODY_MAX_BYTES,
    CodeFile,
    SentFile,
    changed,
    described,
    is_ready,
    named_paths,
    sent_files,
    tree_entries,
)
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, DesiredState

KEPT_AT_ONCE = 4
"""Files of one request: each waits for the disk, and together they wait once."""


class CodeFileRoutes:
    """`/api/v2/deployments/{name}/files`."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        controller: ControllerApi,
        watchers: RolloutWatchers,
        settings: ApiSettings,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._controller = controller
        self._watchers = watchers
        self._settings = settings
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One change of a code space at a time."""

    def routes(self) -> list[web.RouteDef]:
        path = "/api/v2/deployments/{name}/files"
        return [
            web.get(path, self.list_all),
            web.post(path, self.put),
            web.delete(path, self.delete),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`{"files": [{"path", "size", "md5"}]}`: the client sends what differs."""
        deployment = await self._named(request)
        files = await self._store.run(self._store.code_files.of_deployment, deployment.id)
        shown = [{"path": f.path, "size": f.size_bytes, "md5": f.md5} for f in files]
        return web.json_response({"files": shown})

    async def put(self, request: web.Request) -> web.Response:
        """`{"files": [{"path", "b64_encoded_content"}]}`: new ones, or in place of earlier ones."""
        deployment = await self._named(request)
        fields = await body(request, BODY_MAX_BYTES)
        sent = await asyncio.to_thread(sent_files, fields)
        return await self._change(request, deployment, sent, [])

    async def delete(self, request: web.Request) -> web.Response:
        """`{"paths": [...]}`: files, or folders with all below them. One that is not there is no
        error."""
        deployment = await self._named(request)
        paths = named_paths(await body(request, BODY_MAX_BYTES))
        return await self._change(request, deployment, [], paths)

    async def _change(
        self,
        request: web.Request,
        deployment: Deployment,
        sent: Sequence[SentFile],
        gone: Sequence[str],
    ) -> web.Response:
        await self._controller.admit(organization(request).name)
        async with self._turns[deployment.id], holding(self._blobs):
            deployment = await self._named(request)
            if deployment.wanted is not DesiredState.RUNNING:
                raise Conflict(
                    f"code space {deployment.name!r} is terminated; start it with: "
                    f"bentoml deployment update {deployment.name}"
                )
            kept = await self._store.run(self._store.code_files.of_deployment, deployment.id)
            put = await asyncio.to_thread(self._keep, sent)
            files = changed(kept, put, gone)
            tree = await asyncio.to_thread(self._pack, deployment, files)
            left = {file.path for file in files}
            removed = [file.path for file in kept if file.path not in left]
            draft = None
            if is_ready(files):
                latest = deployment.latest
                draft = revision_draft(
                    self._controller,
                    latest.bento,
                    latest.config,
                    deployment.labels,
                    caller(request),
                    files=tree,
                )
            deployment = await self._store.run(
                self._store.code_files.change, deployment.id, put, removed, tree, draft
            )
        if draft is not None:
            number = deployment.latest.number
            events.info(
                "%s: its files have changed, revision %d runs them", deployment.name, number
            )
            self._controller.poke(deployment.id)
        return web.json_response({})

    def _keep(self, sent: Sequence[SentFile]) -> list[CodeFile]:
        """Their bytes in the blob store."""
        self._blobs.check_room(sum(len(file.content) for file in sent))
        now = datetime.now(UTC).timestamp()
        with ThreadPoolExecutor(KEPT_AT_ONCE) as threads:
            blobs = threads.map(self._blob, [file.content for file in sent])
            return [
                CodeFile(file.path, len(file.content), file.md5, blob.chunks, now)
                for file, blob in zip(sent, blobs, strict=True)
            ]

    def _pack(self, deployment: Deployment, files: Sequence[CodeFile]) -> str:
        bento = deployment.latest.bento
        description = self._blob(described(bento.tag, bento.manifest))
        return self._blobs.replace_manifest(Manifest(tuple(tree_entries(files, description))))

    def _blob(self, content: bytes) -> Blob:
        with self._blobs.writer() as writer:
            writer.write(content)
            return writer.replace()

    async def _named(self, request: web.Request) -> Deployment:
        check_cluster(request, self._settings.cluster)
        deployment = await named_deployment(self._store.deployments, request)
        if not deployment.dev:
            raise Invalid(
                f"deployment {deployment.name!r} is no code space, so it has no files of its own; "
                "make one with: bentoml code"
            )
        return deployment
