"""The reader of a URL, by its scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.origins.fsspec_files import FsspecFiles
from hotplate.cache.origins.http_client import HttpClient
from hotplate.cache.origins.http_files import HttpFiles
from hotplate.cache.origins.hub_files import HubFiles
from hotplate.cache.origins.local_files import LocalFiles
from hotplate.cache.origins.locations import UrlFiles
from hotplate.cache.origins.s3_files import S3Files

_ELSEWHERE = frozenset(
    {*("http", "https", "s3", "s3a", "hf"), *("gs", "gcs", "az", "abfs", "abfss", "adl")}
)
"""Schemes that lead to other machines only. Many of fsspec's schemes open local files too, some in
chains (`zip://a::file:///b`)."""


def is_elsewhere(url: str) -> bool:
    """Whether a URL can only lead to files of other machines."""
    scheme, separator, rest = url.partition("://")
    return bool(separator) and scheme in _ELSEWHERE and "::" not in rest


class Schemes:
    """The readers of one agent."""

    def __init__(self, clock: Callable[[], float], environ: Mapping[str, str]) -> None:
        """`environ` has the addresses and credentials of a hub and of object stores."""
        self.clock = clock
        self._local = LocalFiles()
        self._client = client = HttpClient()
        self._http = HttpFiles(client)
        self._s3 = S3Files(client, clock, environ)
        self._hub = HubFiles(client, environ)
        self._others = FsspecFiles(clock)

    def prepare(self) -> None:
        """Loads libraries in the background that take long and will probably be needed."""
        self._s3.prepare()

    def close(self) -> None:
        """Ends idle connections."""
        self._client.close()

    def of(self, url: str) -> UrlFiles:
        """The reader of a URL. Raises UnknownUrl for one that means something else on each machine
        or in each process."""
        scheme, separator, _ = url.partition("://")
        if not separator and not url.startswith("/"):
            raise UnknownUrl(f"{url!r} is neither a URL nor a path from /; write it whole")
        try:
            urlsplit(url)
        except ValueError as exc:
            raise UnknownUrl(f"{url} is no URL ({exc}); write SCHEME://HOST/PATH") from exc
        if not separator or scheme in ("file", "local"):
            return self._local
        if scheme == "memory":
            raise UnknownUrl(f"{url}: the memory of another process cannot be read")
        if scheme in ("http", "https"):
            return self._http
        if scheme in ("s3", "s3a"):
            return self._s3
        if scheme == "hf":
            return self._hub
        return self._others
