from __future__ import annotations

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.variables import variables


@pytest.mark.parametrize(
    ("envs", "message"),
    [
        ([{"name": "A=B", "value": "c"}], r"envs\[0\].name: 'A=B' is no name of a variable"),
        ([{"name": "\0", "value": "c"}], r"envs\[0\].name: it has a NUL character"),
        (
            [{"name": "A"}, {"name": "KEY", "value": "x" * (128 << 10)}],
            r"envs\[1\]: 'KEY' has 131077 bytes with its value \(limit 131072\)",
        ),
        (
            [{"name": f"V{number}", "value": "y" * 100_000} for number in range(6)],
            r"envs: they have 600072 bytes together \(limit 524288\)",
        ),
    ],
)
def test_what_no_process_starts_with_is_refused(envs: list[dict[str, str]], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        variables(Fields({"envs": envs}))


def test_the_longest_that_linux_takes_is_taken() -> None:
    longest = {"name": "KEY", "value": "é" * ((128 << 10) // 2 - 3) + "x"}
    assert variables(Fields({"envs": [longest]})) == [longest]
