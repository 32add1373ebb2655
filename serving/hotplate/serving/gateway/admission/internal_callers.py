"""Who may call an internal route: the services of its own revision, which have its secret. Pure.

The secret comes in a field of its own, which the worker's hooks put there (`replica/siblings.py`),
or as the password of `Authorization: Basic`, which HTTP clients make of a URL with a user in it:
programs that a service starts have such URLs. A web page can have it from nowhere; what a browser
sends for one is refused in any case.
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
"""In the URLs, before the secret."""
PAGES = (b"origin", b"sec-fetch-")
"""How the fields begin by which a browser tells for whom it asks."""


def refuse_strangers(route: Route, request: RequestHead) -> None:
    """Raises `PageRefused` or `Unauthorized` unless a service of the route's revision asks."""
    if any(line.lower().startswith(PAGES) for line in request.kept):
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
    """The same as soon as the head is here: a stranger's body is not waited for."""
    memo = request.memo
    if route.relayed or (isinstance(memo, Admitted) and memo.route is route):
        return None  # its owner asks; this one was let in before
    try:
        refuse_strangers(route, request)
    except GatewayError as error:
        return error
    return None


def is_the_secret(route: Route, authorization: bytes) -> bool:
    """Whether this field is for the gateway alone, and no caller's credentials for a service."""
    scheme, _, said = authorization.partition(b" ")
    if not route.internal or scheme.lower() != b"basic":
        return False
    try:
        user, _, password = base64.b64decode(said.strip(), validate=True).partition(b":")
    except binascii.Error:
        return False
    return user == USER and _opens(route, password)


def _opens(route: Route, secret: bytes) -> bool:
    if not (secret and route.secret_digest):
        return False
    return hmac.compare_digest(hashlib.sha256(secret).hexdigest(), route.secret_digest)
