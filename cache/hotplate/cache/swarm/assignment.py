"""One chunk to fetch: where it is to come from, and why it did not come from there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ORIGIN = ""
"""The source of a step that asks the origin."""
HERE = "here"
"""The source of a step that reads this node's own disk, where the copy may be damaged."""


@dataclass(frozen=True)
class Assignment:
    """The next step: fetch this chunk from that source."""

    index: int
    source: str
    """A peer's id, or ORIGIN."""
    reason: str
    urgent: bool = False
    """A reader waits for it."""
    waits: bool = False
    """The source does not have it yet. It keeps an urgent request until it does; any other request
    only checks that the source is alive."""


class Missed(Enum):
    """Why a peer did not give a chunk; the value is the metrics' label."""

    NOT_YET = "not_yet"
    """It is bringing the chunk."""
    CANNOT = "cannot"
    """It cannot bring the chunk."""
    BUSY = "busy"
    """It has no upload slot."""
    LACKS = "lacks"
    """It neither has the content nor brings it."""
    STALLED = "left"
    """It stalled, or cannot be reached."""
    CORRUPT = "lied"
    """Its bytes were wrong."""
    DISPUTED = "disputed"
    """Another peer contradicts it, or it has been banned meanwhile."""
