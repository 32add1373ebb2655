"""What handlers take from a request: its caller, body and query, checked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aiohttp import web

from hotplate.platform.api.web.access import Access
from hotplate.platform.errors import BodyLarge, BodySlow, Invalid, NotFound
from hotplate.platform.spec.fields import Fields
from hotplate.platform.store.list_filter import ListFilter
from hotplate.platform.store.records import Organization, User

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ACCESS = web.RequestKey("access", Access)
"""Set by the authentication for every path under `/api/` and `/ws/`."""

COUNT_MAX = 1000
COUNT_UNSAID = 100
"""Deployments where the client says no count: it only wants to know then how many there are."""
COUNT_ANY = 10**9
"""More than there are of anything, and small enough for every database."""
BODY_S = web.AppKey("body_s", float)
"""How long a JSON body may take to arrive."""


def access(request: web.Request) -> Access:
    """What the caller may do, and for whom."""
    return request[ACCESS]


def caller(request: web.Request) -> User:
    """The user whose token the request has."""
    return request[ACCESS].user


def organization(request: web.Request) -> Organization:
    """The tenant that the caller acts for: every query is about it alone."""
    return request[ACCESS].user.organization


def check_characters(request: web.Request) -> None:
    """Raises NotFound and Invalid for a path or query with a NUL: PostgreSQL keeps none, so nothing
    has such a name."""
    if "\x00" in request.path:
        raise NotFound(f"{request.path!r:.80}: nothing has a name with a NUL character")
    for name, value in request.query.items():
        # Gateways pass callers' words on and answer for them.
        if "\x00" in name + value and not request.path.startswith("/internal/"):
            raise Invalid(f"{name!r:.80}: it has a NUL character; leave that out")


async def body(request: web.Request, limit_bytes: int = 0) -> Fields:
    """The request's JSON object, of up to `limit_bytes`; 0 = as all others. Raises Invalid,
    BodyLarge and BodySlow."""
    coding = request.headers.get("Content-Encoding", "identity")
    if coding != "identity":
        raise Invalid(f"Content-Encoding: {coding!r} is not accepted; send the body as it is")
    limit_s = request.app[BODY_S]
    try:
        async with asyncio.timeout(limit_s):
            data = await _read(request, limit_bytes or request.client_max_size)
    except TimeoutError as exc:
        raise BodySlow(f"body: not all of it came in {limit_s:g} s; send it again") from exc
    try:
        value = json.loads(data or "{}")
        # Neither a half surrogate nor NaN can be kept by every database.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as exc:
        raise Invalid(f"body: it is not JSON ({exc})") from exc
    return Fields(value)


async def _read(request: web.Request, limit_bytes: int) -> bytes:
    data, declared_bytes = bytearray(), request.content_length or 0
    while len(data) <= limit_bytes >= declared_bytes:
        if not (piece := await request.content.readany()):
            return bytes(data)
        data += piece
    raise BodyLarge(
        f"body: it has {max(len(data), declared_bytes)} bytes or more (limit {limit_bytes}); send "
        "less in one call"
    )


def check_cluster(request: web.Request, ours: str) -> None:
    """Whether the query names no other cluster than this installation. Raises Invalid."""
    asked = request.query.get("cluster", "")
    if asked not in ("", ours):
        raise Invalid(f"cluster: there is no {asked!r:.80}; this installation is {ours!r}")


def query_number(request: web.Request, name: str, default: int, most: int = COUNT_MAX) -> int:
    """A whole number of the query; the client sends an empty string for one that is not set."""
    text = request.query.get(name, "")
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,18}", text):
        raise Invalid(f"{name}: {text!r:.80} is not a whole number")
    return min(int(text), most)


def query_time(request: web.Request, name: str) -> datetime | None:
    """A moment of the query in ISO 8601, UTC where it has no zone; None where it is not there."""
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: in UTC it is before the year 1
        raise Invalid(f"{name}: {text!r} is not a time in ISO 8601") from None


def query_start(request: web.Request) -> int:
    """From which item on the query asks for a page; 0 = from the first."""
    return query_number(request, "start", 0, most=COUNT_ANY)


def query_count(request: web.Request) -> int | None:
    """How many items the query asks for, which may be any number; None = all of them."""
    text = request.query.get("count", "")
    return None if not text else query_number(request, "count", 0, most=COUNT_ANY)


def query_filter(request: web.Request) -> ListFilter:
    """The terms of `q`, `label:key=value`, `is:dev` or words, and `search`, which is a word too."""
    terms = request.query.get("q", "").split()
    named = [term.removeprefix("label:") for term in terms if term.startswith("label:")]
    labels = [(key, value) for key, _, value in (term.partition("=") for term in named)]
    words = [term for term in terms if not term.startswith(("label:", "is:"))]
    # No database keeps it, so no name has it; PostgreSQL refuses to compare with it.
    if any("\0" in text for text in (*terms, request.query.get("search", ""))):
        raise Invalid("q and search: they contain a NUL character; leave it out")
    words += filter(None, [request.query.get("search", "")])
    return ListFilter(labels, words, dev="is:dev" in terms)
