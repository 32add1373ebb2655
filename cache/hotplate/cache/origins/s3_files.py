"""Files in buckets: listed by s3fs, read by our own client at addresses that it signs.

Endpoint and credentials are botocore's: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, its files, roles.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import fsspec

from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.origins.fsspec_files import FsspecFiles
from hotplate.cache.origins.http_client import HttpClient
from hotplate.cache.origins.http_connection import NO_PROGRESS_S
from hotplate.cache.origins.http_files import HttpSource
from hotplate.cache.origins.locations import Version

_CONFIG = {
    "signature_version": "s3v4",
    "connect_timeout": 10,
    "read_timeout": NO_PROGRESS_S,
    "retries": {"max_attempts": 2},
}
"""botocore's own patience is four retries of a minute each."""

_REACHED_BY = (
    *("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
)
"""Variables that show that buckets are to be read: one of them is set wherever credentials are."""

_NICENESS = 10
"""The niceness of the thread that loads libraries in advance."""

_SIGNED_S = 3600
"""How long a signed address is valid; where temporary credentials end earlier, it is made again."""


class S3Files(FsspecFiles):
    """Files at `s3://BUCKET/…`."""

    def __init__(
        self, client: HttpClient, clock: Callable[[], float], environ: Mapping[str, str]
    ) -> None:
        """`environ` shows whether any buckets can be reached."""
        super().__init__(clock)
        self._client = client
        self._environ = environ
        self._making = threading.Lock()
        self._fs: Any = None

    def prepare(self) -> None:
        """Loads the libraries that read buckets in advance, on a thread, where the environment has
        credentials: loading them takes as long as half a gigabyte from a bucket."""
        if any(name in self._environ for name in _REACHED_BY):
            threading.Thread(target=self._connect, name="s3", daemon=True).start()

    def _connect(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with contextlib.suppress(
            Exception
        ):  # whatever it is, the first request for a bucket gets it
            self.file_system("s3://")[0].connect()

    def file_system(self, url: str) -> tuple[Any, str]:
        """One file system for all threads, since each one starts connections and threads of its
        own."""
        with self._making:
            if self._fs is None:
                self._fs = fsspec.filesystem(
                    "s3",
                    use_listings_cache=False,
                    skip_instance_cache=True,
                    config_kwargs=_CONFIG,
                )
        return self._fs, self._fs._strip_protocol(url)

    def source(self, version: Version) -> ByteSource:
        return HttpSource(self._client, version, lambda: self._sign(version))

    def _sign(self, version: Version) -> str:
        try:
            fs, path = self.file_system(version.url)
            return str(fs.sign(path, expiration=_SIGNED_S))
        except Exception as exc:  # each kind of storage has errors of its own
            raise OriginUnavailable(
                f"{version.url} cannot be signed for ({exc or type(exc).__name__}); "
                "check the agent's credentials"
            ) from exc
