"""CacheError
├── BadArchive         an uploaded tar that is refused, with the member and the reason
├── UnknownManifest    no manifest of that digest at the origin
├── UnknownBlob        no blob of that digest at the origin
├── UnknownUrl         nothing that can be read at a URL
├── VersionChanged     the file at a URL has changed since its fetch began
├── Unauthorized       a request without the agent's token
├── TicketRefused      a volume whose ticket is forged, copied or missing
├── BadVolume          a volume that kubelet asks for and no pod can have
├── BadEnvironment     what a build has left and no pod can be given
├── VolumeNotReady     a volume whose files are still on their way
├── TooMany            more connections than one replica may have, or one without a request
├── UnknownPart        no part of that number in that upload
├── ChunkCorrupt       bytes that do not have the digest they should
├── Misled             bytes that were accepted from a peer that lied
├── OriginUnavailable  the origin does not answer, or not in time
│   └── OriginBusy     the origin answers that it is overloaded
└── NoSpace            arena, disk tier or blob store is full
"""

from __future__ import annotations


class CacheError(Exception):
    """Base class of the cache's errors; `code` is stable."""

    code = "cache_error"
    body_bytes = 0
    """Bytes that were read in vain, where a read failed half-way."""


class BadArchive(CacheError):
    """An uploaded archive has a member that is refused (a link, a device, `../`, too large …)."""

    code = "bad_archive"


class UnknownManifest(CacheError):
    """The origin has no manifest of that digest. Push the bento or model again."""

    code = "unknown_manifest"


class UnknownBlob(CacheError):
    """The origin has no blob of that digest. Push the bento or model again."""

    code = "unknown_blob"


class UnknownUrl(CacheError):
    """There is nothing at that URL, or nothing that an agent can read. Check the URL."""

    code = "unknown_url"


class VersionChanged(CacheError):
    """The file at a URL was changed while it was fetched. Ask for it again."""

    code = "version_changed"


class Unauthorized(CacheError):
    """The agent has a token, and the request does not carry it."""

    code = "unauthorized"


class TicketRefused(CacheError):
    """A pod's volume has no ticket of this cluster's control plane for that pod."""

    code = "ticket_refused"


class BadVolume(CacheError):
    """Kubelet asks for a volume in a way in which the agent gives none."""

    code = "bad_volume"


class BadEnvironment(CacheError):
    """An environment that a pod has built cannot be published; the message names the file."""

    code = "bad_environment"


class VolumeNotReady(CacheError):
    """A volume's files are still on their way. They go on coming; ask again."""

    code = "volume_not_ready"


class TooMany(CacheError):
    """A replica has more files open than it may, or holds a connection without a request."""

    code = "too_many"


class UnknownPart(CacheError):
    """A multipart upload has no part of that number, or is no upload. Send the part again."""

    code = "unknown_part"


class ChunkCorrupt(CacheError):
    """Bytes do not have the digest that their manifest names; they are never served."""

    code = "chunk_corrupt"


class Misled(CacheError):
    """Wrong bytes of a file without digests were accepted from a peer that lied. Ask again."""

    code = "misled"


class OriginUnavailable(CacheError):
    """The origin does not answer, or not in time. Check its URL and credentials."""

    code = "origin_unavailable"


class OriginBusy(OriginUnavailable):
    """The origin is overloaded. Ask again later."""

    code = "origin_busy"


class NoSpace(CacheError):
    """Arena, disk tier or blob store has no room; the message names it and what is needed."""

    code = "no_space"
