"""The control planes of one installation: one acts, and a gateway talks to that one."""

from __future__ import annotations

LEADER_FIELD = "Hotplate-Leader"
"""In the answer of one that waits: the URL of the one that acts."""


class ControlPlanes:
    """Their addresses, and which of them is asked now."""

    def __init__(self, urls: str) -> None:
        """`urls`: http(s)://host:port, with commas between several."""
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._number = 0

    @property
    def url(self) -> str:
        """Of the one that acts, as far as is known."""
        return self._urls[self._number]

    @property
    def count(self) -> int:
        return len(self._urls)

    def try_next(self, named: str = "") -> None:
        """The one that is asked does not act, or does not answer; it has `named` the one that
        does, which may be none of those that were known."""
        if named and named not in self._urls:
            self._urls.append(named)
        self._number = self._urls.index(named) if named else (self._number + 1) % len(self._urls)
