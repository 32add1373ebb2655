"""Which deployments have changed, for those who watch; pure.

A change counts when it happens, and once more when what is kept of it is in the store. While
nobody watches that is a number put into a set.
"""

from __future__ import annotations

from collections.abc import Callable


class ChangeWatch:
    """What one watcher has not looked at yet."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when there is something."""
        self._wake = wake
        self._changed: set[int] = set()

    def note(self, deployment_ids: set[int]) -> None:
        self._changed |= deployment_ids
        self._wake()

    def take(self) -> set[int]:
        """Ids of deployments that have changed since."""
        taken, self._changed = self._changed, set()
        return taken


class ChangeFeed:
    def __init__(self) -> None:
        self._watches: list[ChangeWatch] = []
        self._unwritten: set[int] = set()

    def watch(self, wake: Callable[[], None]) -> ChangeWatch:
        """To be ended."""
        watch = ChangeWatch(wake)
        self._watches.append(watch)
        return watch

    def end(self, watch: ChangeWatch) -> None:
        self._watches.remove(watch)

    def changed(self, *deployment_ids: int) -> None:
        self._unwritten.update(deployment_ids)
        for watch in self._watches:
            watch.note(set(deployment_ids))

    def written(self) -> None:
        """All that was to be kept of what has changed is in the store."""
        written, self._unwritten = self._unwritten, set()
        for watch in self._watches if written else ():
            watch.note(written)
