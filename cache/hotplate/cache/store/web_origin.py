"""A blob store at `http(s)://` or `s3://`, whose blobs our own client reads straight into place.

fsspec would make each chunk a bytes object, and fetch all of them on one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotplate.cache.errors import ChunkCorrupt, UnknownBlob, UnknownUrl, VersionChanged
from hotplate.cache.manifest import Blob, Manifest
from hotplate.cache.origins.blob_source import ByteSource, FsspecOrigin, OnProgress, Origin, ignore
from hotplate.cache.origins.locations import UrlFiles, Version
from hotplate.cache.origins.request_size import RequestSize
from hotplate.cache.origins.schemes import Schemes

_SCHEMES = ("http", "https", "s3", "s3a")


class WebOrigin:
    """A blob store on the web. Its manifests, which are small, come by fsspec."""

    def __init__(self, url: str, files: UrlFiles) -> None:
        self.url = url.rstrip("/")
        self._files = files
        self._manifests = FsspecOrigin(url)

    def manifest(self, digest: str) -> Manifest:
        return self._manifests.manifest(digest)

    def source(self, blob: Blob) -> ByteSource:
        url = f"{self.url}/blobs/{blob.digest[:2]}/{blob.digest}"
        return _StoredBlob(self, blob, self._files.source(Version(url, blob.size_bytes, "")))


@dataclass(frozen=True)
class _StoredBlob:
    origin: WebOrigin
    blob: Blob
    file: ByteSource

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        digest, url = self.blob.digest, self.origin.url
        try:
            self.file.read_into(offset, view, on_progress)
        except UnknownUrl as exc:
            raise UnknownBlob(
                f"origin {url} has no blob {digest}; push the bento or model again"
            ) from exc
        except VersionChanged as exc:
            size_bytes = self.blob.size_bytes
            raise ChunkCorrupt(f"blob {digest} at {url} has not {size_bytes} bytes") from exc


def origin_at(url: str, schemes: Schemes) -> Origin:
    """The blob store at a URL. Raises UnknownUrl for a kind that has no reader here."""
    if url.partition("://")[0] in _SCHEMES:
        return WebOrigin(url, schemes.of(url))
    try:
        return FsspecOrigin(url, RequestSize(schemes.clock))
    except (ImportError, ValueError) as exc:
        raise UnknownUrl(f"origin {url} cannot be read: {exc}") from exc
