"""How much an uploaded archive may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArchiveLimits:
    """What one archive may hold. All of it is checked before a byte of the member is given on."""

    members: int = 20_000
    """Files and folders; a bento has hundreds, a model dozens. Each is made safe on the disk."""
    total_bytes: int = 2 << 40
    """All contents together; the largest open models have 1.3 TB."""
    file_bytes: int = 1 << 40
    """One file's content; object stores take at most 5 TiB, in 10,000 parts."""
    paths_bytes: int = 16 << 20
    """All paths together; they are the one thing of an archive that is kept in memory."""
    record_bytes: int = 1 << 20
    """One member's extended headers (pax, GNU long name), likewise held in memory."""
    gzip_ratio: int = 200
    """Unpacked to packed, as of the first MiB; text reaches 20, a bomb 1000."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name}: {value} is below 1")
