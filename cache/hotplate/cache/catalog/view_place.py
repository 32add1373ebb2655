"""Where the file view is mounted: the view sets it, and trees link to it."""

from __future__ import annotations

from pathlib import Path


class ViewPlace:
    """The folder in which the node's files are seen, if there is one. Lives on the event loop."""

    def __init__(self) -> None:
        self.mount: Path | None = None
        """None while no view is served."""

    def tree_root(self, digest: str) -> Path | None:
        """The tree's folder in the view, if there is a view."""
        return None if self.mount is None else self.mount / "trees" / digest
