from __future__ import annotations

import pytest

from hotplate.machine.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("123456789012345678", 123456789012345678),
        ("5B", 5),
        ("1KB", 1000),
        ("1kib", 1024),
        ("20 MB", 20_000_000),
        ("1.5GiB", 3 << 29),
        ("2GB", 2 * 10**9),
        ("3GiB", 3 << 30),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1", "1 parsec", "1G", "0x10", "1e9", "nan"])
def test_what_is_no_size_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size: write bytes, or KB MB GB"):
        parse_size(text)
