"""Where the symbolic links of a tree lead; pure.

A link may lead through others, so where it ends is not seen from its text: with `d` a link to `.`,
`d/../x` lies outside.
"""

from __future__ import annotations

from collections.abc import Mapping

from hotplate.cache.errors import BadEnvironment

MOST_HOPS = 40
"""Linux's limit of links on one way."""
MOST_STEPS = 5_000_000
"""Parts of paths that are gone through for all links of a tree."""


class TreeLinks:
    """The links of one tree by path, and the one path outside to which they may lead."""

    def __init__(self, links: Mapping[str, str], outside: str) -> None:
        self._links = links
        self._outside = outside
        self._steps = 0

    def check(self) -> None:
        """Raises BadEnvironment for the first link that leads out of the tree."""
        for path in sorted(self._links):
            self._follow(path)

    def _follow(self, path: str) -> None:
        way, hops = path.split("/")[::-1], 0
        place: list[str] = []
        while way:
            self._steps += 1
            part = way.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not place:
                    raise _leads_out(path, self._links[path])
                place.pop()
                continue
            place.append(part)
            target = self._links.get("/".join(place))
            if target is None:
                continue
            hops += 1
            if target == self._outside and not way:
                return
            if target.startswith("/"):
                raise _leads_out(path, self._links[path])
            if self._steps > MOST_STEPS:
                raise BadEnvironment(
                    f"its {len(self._links)} links lead through more than {MOST_STEPS} folders "
                    "together; have the bento's commands make fewer"
                )
            if hops > MOST_HOPS:
                raise BadEnvironment(
                    f"the link {path!r} leads through more than {MOST_HOPS} others, or in a circle"
                )
            place.pop()
            way += target.split("/")[::-1]


def _leads_out(path: str, target: str) -> BadEnvironment:
    return BadEnvironment(
        f"the link {path!r} leads to {target[:200]!r}, which is outside of the environment; have "
        "the bento's commands put a copy there"
    )
