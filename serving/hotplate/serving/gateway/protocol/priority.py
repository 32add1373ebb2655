"""How urgent a request is: RFC 9218's urgency, where 0 goes first and 7 last."""

from __future__ import annotations

from typing import Final

USUAL_PRIORITY: Final = 3
"""The priority of a request that names none."""
