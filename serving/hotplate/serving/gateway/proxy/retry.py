"""How far a request has come at a replica, and whether it may go to another. Pure."""

from __future__ import annotations

from typing import Final

IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"})
"""Methods whose requests may be repeated (RFC 9110, 9.2.2)."""
SENDS = 3
"""How often one request is sent at most: a request that crashes its replica must not crash them
all."""


# How far a request has come at its last replica; not an enum, as in `queue/ticket.py`.
UNSENT: Final = 0
"""No replica can have read anything of it."""
SENT: Final = 1
"""Our worker has it, and has not said that its handler begins."""
STARTED: Final = 2
"""Its handler has begun, or may have begun where the server does not say so."""
ANSWERED: Final = 3
"""Its caller has a part of the response."""


def why_not_again(phase: int, *, may_run_twice: bool, sends: int, kept: bool) -> str:
    """Why the request may not be sent again; empty = it may. `may_run_twice`: to run it twice does
    no harm, by its method or by what its service says; `sends`: how often it was sent; `kept`:
    whether all of its body that has come is still here."""
    if phase == ANSWERED:
        return "its response had begun"
    if phase == STARTED and not may_run_twice:
        return "it may have run the request, so send it again only if that does no harm"
    if sends >= SENDS:
        return f"it was sent {sends} times, which is the most; send it again later"
    if not kept:
        return "the request's body is too large to be kept and sent again by itself; send it again"
    return ""
