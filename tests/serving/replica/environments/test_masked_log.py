from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.serving.replica.environments.masked_log import PlainLog, masked_log
from hotplate.serving.replica.inside.building.mask import HELD_BYTES, PIECE_BYTES, Mask


def masked(texts: list[str], *pieces: bytes) -> bytes:
    mask = Mask(texts)
    return b"".join(map(mask.feed, pieces)) + mask.rest()


@pytest.mark.parametrize(
    ("texts", "said", "shown"),
    [
        (["secret"], "a secret, secret", "a ***, ***"),
        (["secret"], "secretsecret", "******"),
        (["secret"], "secre", "secre"),
        (["abc", "abcdef"], "abcdef abcx abcde", "*** ***x ***de"),
        (["xab", "bq"], "xabq xab bq", "*** *** ***"),
        (["aa"], "aaaaa b a", "*** b a"),
        (["a+b c/d"], "https://u:a%2Bb%20c%2Fd@host a+b c/d", "https://u:***@host ***"),
        (["line-of-a-key\nanother-line\nx\n"], "x another-line\nline-of-a-key", "x ***\n***"),
        (["line-of-a-key\nanother-line\n"], "line-of-a-key\nanother-line", "***"),
        ([], "as it is", "as it is"),
        ([""], "as it is", "as it is"),
        (["ä€"], "ä€ ä", "*** ä"),
    ],
)
def test_a_value_stands_as_three_stars(texts: list[str], said: str, shown: str) -> None:
    data = said.encode()
    assert masked(texts, data) == shown.encode()
    for cut in range(len(data)):
        assert masked(texts, data[:cut], data[cut:]) == shown.encode(), cut
    assert masked(texts, *(bytes([each]) for each in data)) == shown.encode()


ALPHABET = st.text("abc", min_size=1, max_size=12)


@given(st.lists(ALPHABET, min_size=1, max_size=5), st.data())
def test_no_value_is_shown_wherever_the_stream_is_cut(
    texts: list[str], data: st.DataObject
) -> None:
    said = "".join(data.draw(st.lists(st.one_of(ALPHABET, st.sampled_from(texts)), max_size=20)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=8)))
    pieces = [said[a:b].encode() for a, b in pairwise([0, *cuts, len(said)])]
    shown = masked(texts, *pieces)
    assert shown == masked(texts, said.encode())
    assert not any(text.encode() in shown for text in texts)


def test_what_is_long_is_masked_piece_by_piece_and_holds_no_output_back_for_ever() -> None:
    long = os.urandom(5 * PIECE_BYTES).hex()
    assert set(masked([long], long.encode())) == {ord("*")}
    mask = Mask(["ab" * 8])
    shown = sum(len(mask.feed(b"ab" * 512)) for _ in range(2 * HELD_BYTES // 1024))
    assert shown > 0


async def test_what_is_written_into_the_pipe_stands_masked_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_text("# before\n")
    log = masked_log(path, ["hf_0123", ""])
    with log:
        with log.written_to.open("ab", buffering=0) as writer:
            writer.write(b"token hf_01")
            writer.write(b"23 and hf_0")
        log.drain()
        assert path.read_text() == "# before\ntoken *** and hf_0"
    assert os.listdir(tmp_path) == ["build.log"]
    assert isinstance(masked_log(path, ["", ""]), PlainLog)
    assert masked_log(path, []).written_to == path
