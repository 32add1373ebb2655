"""Internal routes may be called by services of their own revision only, which have a secret. Pure.

The secret comes in a field of its own, which the worker adds (`inside/patches/siblings.py`), or as
the password of `Authorization: Basic`, which HTTP clients make of a URL with a user in it: programs
that a service starts have such URLs. A web page cannot know it, and what a browser sends for one is
refused in any case.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from hotplate.serving.gateway.admission.terms import Admitted
from hotplate.serving.gateway.errors import GatewayError, PageRefused, Unauthorized
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.routes import Route

USER = b"hotplate"
"""The user in the URLs, before the secret."""
PAGES = (b"origin", b"sec-fetch-")
"""Beginnings of the fields in which a browser says for which page it asks."""


def refuse_strangers(route: Route, request: RequestHead) -> None:
    """Raises `PageRefused` or `Unauthorized` unless a service of the route's revision asks."""
    if any(line.lower().startswith(PAGES) for line in request.lines):
        raise PageRefused(
            f"{route.name} is called by other services of its bento, never by a web page; "
            "send no Origin and no Sec-Fetch field."
        )
    if not (_opens(route, request.secret) or is_the_secret(route, request.authorization)):
        raise Unauthorized(
            f"{route.name} is called by other services of its own revision only: by "
            "bentoml.depends, or with the URL that their BENTOML_RUNNER_MAP has for it."
        )


def why_refused(route: Route, request: RequestHead) -> GatewayError | None:
    """Why the request is refused, known from its head: a stranger's body is not waited for."""
    memo = request.memo
    if route.relayed or (isinstance(memo, Admitted) and memo.route is route):
        return None  # the owner checks; or the same head was admitted before
    try:
        refuse_strangers(route, request)
    except GatewayError as error:
        return error
    return None


def is_the_secret(route: Route, authorization: bytes) -> bool:
    """Whether this field has the secret, which is for the gateway only and is no caller's
    credential."""
    scheme, _, credentials = authorization.partition(b" ")
    if not route.internal or scheme.lower() != b"basic":
        return False
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).partition(b":")
    except binascii.Error:
        return False
    return user == USER and _opens(route, password)


def _opens(route: Route, secret: bytes) -> bool:
    if not (secret and route.secret_digest):
        return False
    return hmac.compare_digest(hashlib.sha256(secret).hexdigest(), route.secret_digest)
