"""Chunks at the edges of what is read, however they come in pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.serving.gateway.errors import BadRequest, HeadTooLarge
from hotplate.serving.gateway.http1.chunk_reader import (
    EXCESS_BYTES,
    FREE_BYTES,
    LINE_BYTES,
    ChunkReader,
)
from hotplate.serving.gateway.limits import Limits

LIMITS = replace(Limits(), head_bytes=100, head_lines=5)


def read(data: bytes, piece: int, *, head_bytes: int = 0, head_lines: int = 0) -> list[bytes]:
    """The body's pieces; nothing is left over."""
    reader = ChunkReader(LIMITS, head_bytes=head_bytes, head_lines=head_lines)
    taken: list[bytes] = []
    for at in range(0, len(data), piece):
        end = reader.read(data[at : at + piece], taken.append)
        last = at + piece >= len(data)
        assert (end >= 0) is last
    assert end == len(data) - at
    return taken


def chunk(data: bytes, extension: int = 0) -> bytes:
    """A chunk whose line has an extension of so many bytes."""
    size = b"%x" % len(data)
    return size + (b";" + b"a" * (extension - 1) if extension else b"") + b"\r\n" + data + b"\r\n"


END = b"0\r\n\r\n"


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1 << 20])
def test_a_body_is_what_its_chunks_hold(piece: int) -> None:
    data = chunk(b"abc") + chunk(b"0123456789") + b"00a\r\nabcdefghij\r\n" + END
    assert b"".join(read(data, piece)) == b"abc0123456789abcdefghij"


def test_a_chunk_that_came_whole_is_one_piece() -> None:
    assert read(chunk(b"abc") + chunk(b"de") + END, 1 << 20) == [b"abc", b"de"]


def test_a_body_ends_where_the_next_request_begins() -> None:
    reader = ChunkReader(LIMITS, head_bytes=0, head_lines=0)
    assert reader.read(END + b"GET", lambda _: None) == len(END)
    assert reader.trailers == []


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_a_line_before_a_chunk_is_bounded(piece: int) -> None:
    longest = LINE_BYTES - len(b"3\r\n")
    assert b"".join(read(chunk(b"abc", longest) + END, piece)) == b"abc"
    with pytest.raises(BadRequest, match="line has more"):
        read(chunk(b"abc", longest + 1) + END, piece)


def framed(excess: int) -> bytes:
    """Chunks of one byte whose framing is in excess by so many bytes."""
    lines = []
    while excess > 0:
        part = min(excess, 1000)
        excess -= part
        # The line and its end, less what is free and twice the data.
        lines.append(chunk(b"x", part + FREE_BYTES + 2 - len(b"1\r\n")))
    return b"".join(lines)


@pytest.mark.parametrize("piece", [997, 1 << 20])
def test_framing_beside_data_is_bounded(piece: int) -> None:
    last = b"0\r\n"  # has some bytes free
    assert read(framed(EXCESS_BYTES) + last + b"\r\n", piece)
    with pytest.raises(BadRequest, match="more framing than data"):
        read(framed(EXCESS_BYTES + 1) + last + b"\r\n", piece)


def test_data_makes_room_for_framing_but_none_is_saved_up() -> None:
    large = chunk(b"y" * EXCESS_BYTES)
    half = framed(EXCESS_BYTES // 2 + 1)
    assert read(half + large + half + END, 1 << 20)
    with pytest.raises(BadRequest, match="more framing than data"):
        read(large + half + half + END, 1 << 20)


@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_header_and_trailers_share_their_limits(piece: int) -> None:
    trailers = b"A: b\r\n" * 3  # 6 bytes each, and 2 of the last line
    read(b"0\r\n" + trailers + b"\r\n", piece, head_lines=2, head_bytes=100 - 18 - 2)
    with pytest.raises(HeadTooLarge, match="lines"):
        read(b"0\r\n" + trailers + b"\r\n", piece, head_lines=3)
    with pytest.raises(HeadTooLarge, match="bytes"):
        read(b"0\r\n" + trailers + b"\r\n", piece, head_bytes=100 - 18 - 1)
