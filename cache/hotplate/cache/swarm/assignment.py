"""One step of a swarm: a chunk, where it is to come from, and why it did not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ORIGIN = ""
"""As a step's source: the origin, and no peer."""
HERE = "here"
"""As a step's source: a copy on this node's own disk, which may be damaged."""


@dataclass(frozen=True)
class Assignment:
    """What to do next."""

    index: int
    source: str
    """A peer's id, or ORIGIN."""
    reason: str
    urgent: bool = False
    """A reader waits for it."""
    waits: bool = False
    """The source has it not yet. Urgent requests are kept until it has; others ask if it lives."""


class Missed(Enum):
    """Why a peer did not give a chunk."""

    NOT_YET = "it is bringing the chunk"
    CANNOT = "it cannot bring the chunk"
    BUSY = "it has no upload slot"
    LACKS = "it neither has the content nor brings it"
    LEFT = "it stalled, or cannot be reached"
    LIED = "its bytes were wrong"
    DISPUTED = "it is contradicted, or was found to lie meanwhile"
