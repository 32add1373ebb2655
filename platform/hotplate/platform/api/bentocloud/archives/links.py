"""Signed transfer URLs: what lets a client move bytes without its token.

A link is `<claims>.<signature>`, both in URL-safe base64; the signature is HMAC-SHA256 over the
claims with a key that never leaves the control plane.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass

from hotplate.platform.errors import LinkExpired


@dataclass(frozen=True)
class SignedLink:
    """One thing that its bearer may do."""

    action: str
    """`put` a part of an upload, or `get` the files of a manifest as a tar."""
    subject: str
    """The upload's id, or the manifest's digest."""
    part: int
    """The part's number; 0 for `get`."""
    expires_at: float
    """Unix seconds."""
    version_id: int = 0
    version_uid: str = ""
    """The version of a bento or model that it is about: it opens nothing once that is gone."""


def sign(link: SignedLink, key: bytes) -> str:
    """The link as the last part of a URL: its claims and a signature with `key`."""
    claims = urlsafe_b64encode(json.dumps(asdict(link)).encode())
    return f"{claims.decode()}.{_signature(claims, key)}"


def verify(text: str, action: str, key: bytes, now: float) -> SignedLink:
    """The link, if we signed it for `action` and it is still good. Raises LinkExpired."""
    claims, _, signature = text.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(claims.encode(), key).encode()):
        raise LinkExpired("the transfer URL was not signed here; ask for a new one")
    try:
        link = SignedLink(**json.loads(urlsafe_b64decode(claims)))
    except (ValueError, TypeError) as error:  # another release of ours has signed it
        raise LinkExpired("the transfer URL is of another form; ask for a new one") from error
    if link.action != action:
        raise LinkExpired(f"the transfer URL is for {link.action}, not for {action}")
    if now >= link.expires_at:
        raise LinkExpired("the transfer URL has expired; ask for a new one")
    return link


def _signature(claims: bytes, key: bytes) -> str:
    return urlsafe_b64encode(hmac.digest(key, claims, "sha256")).decode()
