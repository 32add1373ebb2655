"""The files at a URL, each in a version.

A *version* is a file at an origin as it is now: a change gives it another tag. Nodes know its
content by the version's key as long as the digests are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol
from urllib.parse import urlsplit

from blake3 import blake3

from hotplate.cache.errors import UnknownUrl, VersionChanged
from hotplate.cache.origins.blob_source import ByteSource

_MOST_BYTES = 1 << 43
"""The largest file. Keeping account of a larger one, which only a faulty server reports, would fill
the memory."""


@dataclass(frozen=True)
class Version:
    """One file at an origin, as it is now."""

    url: str
    """The URL of the file itself."""
    size_bytes: int
    tag: str
    """What changes with the content: an ETag, or a time of modification."""

    def __post_init__(self) -> None:
        if not 0 <= self.size_bytes <= _MOST_BYTES:
            raise UnknownUrl(
                f"{self.name} is said to have {self.size_bytes} bytes; a file may have 0 to "
                f"{_MOST_BYTES}"
            )

    @property
    def name(self) -> str:
        """Its name in error messages."""
        return hide(self.url)

    @cached_property
    def key(self) -> str:
        """The same on every node that sees this version."""
        return blake3(f"{self.url}\n{self.size_bytes}\n{self.tag}".encode()).hexdigest()


@dataclass(frozen=True)
class Location:
    """The files at a URL: the one file itself, or all of a folder's."""

    url: str
    versions: tuple[Version, ...]

    @property
    def size_bytes(self) -> int:
        return sum(version.size_bytes for version in self.versions)


class UrlFiles(Protocol):
    """The files behind one kind of URL; synchronous and thread-safe."""

    def find(self, url: str) -> Location:
        """The files that are there now. Raises UnknownUrl, OriginUnavailable."""

    def source(self, version: Version) -> ByteSource:
        """The source of that version's bytes, which raises VersionChanged once the file has
        changed."""


def changed(version: Version) -> VersionChanged:
    """The error for a file that has changed since it was found."""
    return VersionChanged(f"{version.name} was changed while it was fetched; ask for it again")


def hide(url: str) -> str:
    """The URL without its possible secrets: the user, and the query of a signed one."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
