from __future__ import annotations

import pytest

from hotplate.platform.api.bentocloud.archives.links import SignedLink, sign, verify
from hotplate.platform.errors import LinkExpired

LINK = SignedLink("put", "upload-1", 3, expires_at=100.0)


def test_a_link_says_what_was_signed() -> None:
    assert verify(sign(LINK, b"key"), "put", b"key", now=99.9) == LINK


@pytest.mark.parametrize(
    ("action", "key", "now", "reason"),
    [
        ("put", b"key", 100.0, "has expired"),
        ("get", b"key", 0.0, "is for put, not for get"),
        ("put", b"other", 0.0, "not signed here"),
    ],
)
def test_any_other_use_is_refused(action: str, key: bytes, now: float, reason: str) -> None:
    with pytest.raises(LinkExpired, match=reason):
        verify(sign(LINK, b"key"), action, key, now)


@pytest.mark.parametrize("text", ["", ".", "a.b", "ä.ö"])
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(LinkExpired):
        verify(text, "put", b"key", now=0.0)
