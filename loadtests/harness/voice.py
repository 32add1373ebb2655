"""What a process that is listened to says."""

from __future__ import annotations

import os
from typing import TextIO


def voice() -> TextIO:
    """Standard output for the caller alone: what anybody else prints goes to standard error."""
    ours = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return ours
