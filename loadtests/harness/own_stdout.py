"""A program's standard output, for its results alone."""

from __future__ import annotations

import os
from typing import TextIO


def own_stdout() -> TextIO:
    """The standard output. What anything else prints goes to standard error from now on."""
    ours = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return ours
