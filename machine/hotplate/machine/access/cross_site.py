"""Which requests a browser sends for a page that is not ours. Pure.

A page may send requests anywhere, with whatever rights its reader has, such as being on this
machine; it only cannot read the answers. Browsers tell of the page in `Origin` and
`Sec-Fetch-Site`, which it cannot change. Programs send neither, and are not concerned. Another
deployment of this machine is another origin, though of the same "site": its port differs, and so
does its author.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

OWN_SITES = frozenset({"same-origin", "none"})
"""The request's own page, or no page at all: an address that somebody has typed."""
REFUSED = (
    "A page of another origin ({origin}) may not call this; only pages that are served here may."
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def nobody(origin: str) -> bool:
    """For servers that no other origin may call."""
    return False


@dataclass(frozen=True)
class RequestContext:
    """What says on whose behalf a request was sent; empty where the header is missing."""

    method: str
    host: str
    """`Host` as the server takes it: of a target in absolute form, its authority."""
    origin: str = ""
    site: str = ""
    """`Sec-Fetch-Site`"""
    mode: str = ""
    dest: str = ""
    secure: bool = False
    """Whether the request came by TLS."""


def is_foreign(
    request: RequestContext,
    hosts: Sequence[str] = (),
    allows: Callable[[str], bool] = nobody,
) -> bool:
    """Whether another origin's page sent it, and may not.

    `hosts` are names by which browsers know this server when a proxy in front of it changes
    `Host`, with a port where it is not the scheme's own. `allows` says which origins may; "*" asks
    for all of them. Following a link is allowed to everybody: it changes nothing, and the page
    that has it does not see the answer.
    """
    if request.site in OWN_SITES:
        return False
    if request.origin:
        return not (_is_own(request, hosts) or allows(request.origin))
    return bool(request.site) and not _is_link(request) and not allows("*")


def _is_link(request: RequestContext) -> bool:
    reads = request.method in ("GET", "HEAD")
    return reads and request.mode == "navigate" and request.dest == "document"


def _is_own(request: RequestContext, hosts: Sequence[str]) -> bool:
    scheme, separator, authority = request.origin.lower().partition("://")
    # Without TLS here a proxy may have undone it, so that the page was served by https.
    schemes = ("https",) if request.secure else ("http", "https")
    if not separator or scheme not in schemes:
        return False
    port = _DEFAULT_PORTS[scheme]
    own = {name.lower().removesuffix(port) for name in (request.host, *hosts)}
    return authority.removesuffix(port) in own
