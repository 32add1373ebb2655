"""Lines of pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.live.line_buffer import LINE_CHARS, LineBuffer


def test_lines_are_told_when_they_are_whole() -> None:
    lines = LineBuffer()
    assert lines.add("a\nb") == ["a"]
    assert lines.add("c\r\n\nd") == ["bc", ""]
    assert lines.end() == ["d"]
    assert lines.end() == []


def test_a_line_without_an_end_is_cut() -> None:
    lines = LineBuffer()
    found = lines.add("x" * (2 * LINE_CHARS + 5))
    assert [len(line) for line in found] == [LINE_CHARS, LINE_CHARS, 5]
    assert lines.end() == []


@given(st.lists(st.text(alphabet="ab\n"), max_size=20))
def test_pieces_do_not_matter(pieces: list[str]) -> None:
    buffer = LineBuffer()
    found = [line for piece in pieces for line in buffer.add(piece)] + buffer.end()
    text = "".join(pieces)
    assert found == (text.removesuffix("\n").split("\n") if text else [])
