"""Parts of a body that say they are pickles, wherever the network cuts the body."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.http1.multipart import PartWatch, boundary_of

BOUNDARY = b"Xx'42"
PICKLE = b"application/vnd.BentoML+Pickle; a=b"


def body(*types: bytes, content: bytes = b"data") -> bytes:
    parts = [
        b"--%b\r\nContent-Disposition: form-data; name=f\r\ncontent-TYPE: %b\r\n\r\n%b\r\n"
        % (BOUNDARY, kind, content)
        for kind in types
    ]
    return b"".join(parts) + b"--%b--\r\n" % BOUNDARY


@pytest.mark.parametrize("piece", [1, 2, 7, 10_000])
@pytest.mark.parametrize(
    ("sent", "found"),
    [
        pytest.param(body(b"text/plain", b"image/png"), False, id="others"),
        pytest.param(body(b"text/plain", PICKLE), True, id="the second"),
        pytest.param(body(b"text/plain", content=b"content-type: pickle"), False, id="in content"),
        pytest.param(body(b"application/\r\n x-pickle"), True, id="folded"),
        pytest.param(body(b"a/b", b"a/pickle", content=b"\r\n--Xx" * 9), True, id="nearly one"),
        pytest.param(b"preamble\r\n" + body(b"a/x-pickle"), True, id="after a preamble"),
    ],
)
def test_a_pickle_among_the_parts_is_found(sent: bytes, found: bool, piece: int) -> None:
    watch = PartWatch(BOUNDARY)
    pieces = [sent[at : at + piece] for at in range(0, len(sent), piece)]
    assert any([watch.has_pickle(each) for each in pieces]) is found


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (b"multipart/form-data; boundary=aBc", b"aBc"),
        (b'multipart/form-data; charset=x; Boundary="a b"', b"a b"),
        (b"multipart/form-data", b""),
    ],
)
def test_the_boundary_is_read(content_type: bytes, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary
