"""From the parts of an uploaded tar to the files of a bento or model, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from hotplate.cache.errors import BadArchive, CacheError
from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.holds import Hold
from hotplate.cache.tarballs import archive
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.platform.errors import Invalid, StoreFailed
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Artifact, UploadRecord
from hotplate.serving.replica.description import read_description

DESCRIPTION_LIMIT_BYTES = 16 << 20
"""bento.yaml holds the schema and the readme; more than this is not read."""

UNPACKED_AT_ONCE = 4
"""Archives; the others wait their turn."""

logger = logging.getLogger("hotplate.api")


class Unpacking:
    """At most one job per version is waited for; the work itself is done in threads.

    The order of a job's steps keeps what was acknowledged: files, then the manifest, then the
    record; parts go last. A process killed in between leaves parts that can be unpacked again.
    """

    def __init__(self, store: Store, blobs: BlobStore, limits: ArchiveLimits) -> None:
        self._store = store
        self._blobs = blobs
        self._limits = limits
        # Of their own: archives of many files would leave no thread for anybody else's question.
        self._threads = ThreadPoolExecutor(UNPACKED_AT_ONCE, "unpacking")
        self._jobs: dict[int, asyncio.Task[Artifact]] = {}

    def start(self, upload: UploadRecord, parts: Sequence[int]) -> None:
        """Unpacks these parts, in this order."""
        key = upload.artifact.id
        task = asyncio.create_task(self._unpack(upload, parts))
        self._jobs[key] = task
        task.add_done_callback(lambda done: self._done(key, done))

    def busy(self, artifact_id: int) -> bool:
        """Whether an upload of the version is being unpacked."""
        return artifact_id in self._jobs

    async def wait(
        self, artifact: Artifact, timeout_s: float, longer: Callable[[], bool] = lambda: False
    ) -> Artifact:
        """The version after its job, or as it is after `timeout_s`, unless `longer` says each time
        to wait as long again.

        Raises what the job raised: Invalid and BadArchive for a tar that is refused, any other
        CacheError for a store that failed.
        """
        if job := self._jobs.get(artifact.id):
            while not (await asyncio.wait({job}, timeout=timeout_s))[0] and longer():
                pass
            if job.done():
                return job.result()
        repository = artifact.repository
        return await self._store.run(
            self._store.artifacts.get,
            repository.organization_id,
            repository.kind,
            repository.name,
            artifact.version,
        )

    async def drop(self, upload: UploadRecord) -> None:
        """Remove an upload and its parts, which nobody needs."""
        await asyncio.to_thread(self._blobs.drop_parts, upload.id)
        await self._store.run(self._store.uploads.close, upload.id)

    async def fail(self, upload: UploadRecord, reason: str) -> None:
        """The upload is over. Its parts go first: the disk may be too full for the rest.

        Raises nothing: it follows the error that counts.
        """
        with suppress(CacheError, StoreFailed):
            await self.drop(upload)
        await self._note_failure(upload.artifact, reason)

    async def _note_failure(self, artifact: Artifact, reason: str) -> None:
        with suppress(StoreFailed):
            await self._store.run(self._store.uploads.fail, artifact.id, reason)

    async def close(self) -> None:
        """Waits for what is under way, so that no thread outlives the stores it writes to."""
        if self._jobs:
            await asyncio.wait(self._jobs.values())
        self._threads.shutdown()

    async def _unpack(self, upload: UploadRecord, parts: Sequence[int]) -> Artifact:
        artifact = upload.artifact
        loop = asyncio.get_running_loop()
        try:
            async with holding(self._blobs) as hold:  # until the files have a name
                files, size_bytes = await loop.run_in_executor(
                    self._threads, self._take_apart, upload, parts, hold
                )
                uploads = self._store.uploads
                finished = await self._store.run(uploads.finish, artifact.id, files, size_bytes)
        except (BadArchive, Invalid) as error:
            await self.fail(upload, str(error))
            raise
        except Exception as error:  # noted as the upload's end, and raised again
            reason = str(error) if isinstance(error, CacheError) else "unpacking it failed"
            await self._note_failure(artifact, reason)
            raise
        await self.drop(upload)
        return finished

    def _take_apart(
        self, upload: UploadRecord, parts: Sequence[int], hold: Hold
    ) -> tuple[str, int]:
        pieces = hold.during(self._blobs.read_parts(upload.id, parts))
        manifest = archive.unpack(pieces, self._blobs, self._limits)
        _check_description(upload.artifact, manifest, self._blobs)
        return self._blobs.replace_manifest(manifest), manifest.size_bytes

    def _done(self, key: int, task: asyncio.Task[Artifact]) -> None:
        if self._jobs.get(key) is task:
            del self._jobs[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, CacheError | Invalid):
            logger.error("unpacking failed", exc_info=error)


@asynccontextmanager
async def holding(blobs: BlobStore) -> AsyncIterator[Hold]:
    """Nothing is removed from the store meanwhile. Raises CacheError."""
    hold = blobs.hold()
    entering = asyncio.create_task(asyncio.to_thread(hold.__enter__))
    try:
        yield await asyncio.shield(entering)
    finally:
        await asyncio.wait({entering})
        with suppress(CacheError):  # it is over by itself
            await asyncio.to_thread(hold.__exit__)


def _check_description(artifact: Artifact, manifest: Manifest, blobs: BlobStore) -> None:
    """Raises Invalid unless the tar is of the bento or model that it was sent for."""
    kind = artifact.repository.kind
    file = f"{kind}.yaml"
    entry = manifest.get(file)
    if entry is None or entry.blob is None:
        raise Invalid(f"{kind} '{artifact.tag}': its tar has no {file} at the top")
    if entry.blob.size_bytes > DESCRIPTION_LIMIT_BYTES:
        raise Invalid(
            f"{kind} '{artifact.tag}': {file} has {entry.blob.size_bytes} bytes, "
            f"more than {DESCRIPTION_LIMIT_BYTES}"
        )
    found = _tag(file, b"".join(blobs.chunks(entry.blob)))
    if found != artifact.tag:
        raise Invalid(f"{kind} '{artifact.tag}': the tar's {file} is of '{found}'")


def _tag(file: str, content: bytes) -> str:
    try:
        described = read_description(content)
    except ValueError as exc:
        raise Invalid(f"{file}: {exc}") from exc
    name, version = described.get("name"), described.get("version")
    # A name may be a mapping of aliases of aliases: writing that out would never end.
    if isinstance(name, dict | list) or isinstance(version, dict | list):
        raise Invalid(f"{file}: its name or version is not text")
    return f"{name}:{version}"
