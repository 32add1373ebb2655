"""Parts of a body that say they are pickles, wherever the network cuts the body."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.http1.multipart import (
    HEAD_BYTES,
    PartWatch,
    boundary_of,
    watch_of,
)

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


def test_what_was_found_stays_found() -> None:
    watch = PartWatch(BOUNDARY)
    assert not watch.found
    assert watch.has_pickle(body(PICKLE))
    assert watch.has_pickle(b"more")
    assert watch.found


LONG = b"x" * (HEAD_BYTES + 1)


@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("head", "found"),
    [
        pytest.param(LONG + b"\r\nContent-Type: a/pickle", True, id="after a long line"),
        pytest.param((LONG[:60] + b"\r\n") * 200 + PICKLE, False, id="no field"),
        pytest.param(
            (LONG[:60] + b"\r\n") * 200 + b"Content-Type: a/pickle", True, id="after many lines"
        ),
        pytest.param(b"Content-Type: a/b; c=" + LONG + b"pickle", True, id="in a long line"),
        pytest.param(b"Content-Type: a/b;\r\n " + LONG + b"pickle", True, id="folded"),
        pytest.param(b"Content-Type: a/b; c=" + LONG + b"\r\nName: pickle", False, id="another's"),
        pytest.param(b"Name: " + LONG + b"pickle\r\nContent-Type: a/b", False, id="another's long"),
    ],
)
def test_a_parts_header_may_be_long(head: bytes, found: bool, piece: int) -> None:
    sent = b"--%b\r\n%b\r\n\r\npickle\r\n" % (BOUNDARY, head)
    watch = PartWatch(BOUNDARY)
    pieces = [sent[at : at + piece] for at in range(0, len(sent), piece)]
    assert any([watch.has_pickle(each) for each in pieces]) is found
    after = body(PICKLE)
    assert any([watch.has_pickle(each) for each in (after[:30], after[30:])]), "the next part"


def test_a_body_is_looked_through_if_its_type_has_a_boundary() -> None:
    watch = watch_of(b"multipart/form-data; boundary=" + BOUNDARY)
    assert watch is not None and watch.has_pickle(body(PICKLE))
    assert watch_of(b"multipart/form-data") is None
