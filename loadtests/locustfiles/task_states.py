"""How BentoML's task routes say how far a task is, and how often they are asked."""

from __future__ import annotations

COMPLETED = "completed"
RUNNING = frozenset({"pending", "in_progress"})
"""There is no result yet."""
_SHARE, _SHORTEST_S, _LONGEST_S = 0.1, 0.02, 1.0


def pause_s(taken_s: float) -> float:
    """How long to wait before the next question, when a task has taken `taken_s` seconds: what is
    measured is too long by a tenth at most."""
    return min(max(_SHARE * taken_s, _SHORTEST_S), _LONGEST_S)
