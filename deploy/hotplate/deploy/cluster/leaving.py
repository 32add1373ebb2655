"""Replicas that are to end, shown as ending before the cluster says so; pure.

Whoever drained them sends them nothing more from then on. Were they shown as ready until the watch
tells of their end, they would be taken for replicas that may have requests.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hotplate.deploy.engine import Replica, ReplicaState


class Leaving:
    """By their ids."""

    def __init__(self, believed_s: float) -> None:
        """So long one is shown so that the cluster does not end: it has ended another."""
        self._believed_s = believed_s
        self._until: dict[str, float] = {}

    def told(self, ids: Collection[str], now: float) -> None:
        """They are to end."""
        self._until = {each: until for each, until in self._until.items() if until > now}
        self._until.update(dict.fromkeys(ids, now + self._believed_s))

    def shown(self, replica: Replica, now: float) -> Replica:
        """As ending, if it is to end."""
        if self._until.get(replica.id, 0.0) <= now:
            return replica
        return replace(replica, state=ReplicaState.STOPPING)
