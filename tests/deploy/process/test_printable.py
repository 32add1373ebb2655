"""What a hostile program prints, on a terminal that somebody else sits at."""

from __future__ import annotations

import pytest

from hotplate.deploy.process.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[H\x1b[?1049hgone", "␛[2J␛[H␛[?1049hgone"),
        ("\x1b]0;title\x07x", "␛]0;title␇x"),
        ("\x1b]52;c;Y3VybCBldmlsIHwgc2g=\x07x", "␛]52;c;Y3VybCBldmlsIHwgc2g=␇x"),
        ("\x1b]8;;https://evil.example\x1b\\link", "␛]8;;https://evil.example␛\\link"),
        ("\x1bP+q544e\x1b\\x", "␛P+q544e␛\\x"),
        ("\x9b31mx", "31mx"),
        ("a\x08\x7fb\x00c\x07", "a␈␡b␀c␇"),
        ("10 %\r20 %\r\n", "10 %\n20 %\n"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("\ud800x", "x"),
        ("tab\tand ünïcode 漢字 🙂\n", "tab\tand ünïcode 漢字 🙂\n"),
        ("\x1b]" + "x" * 100_000, "␛]" + "x" * 100_000),
        ("\x1b\x1b[31m[2J", "␛[2J"),
    ],
)
def test_nothing_is_left_that_a_terminal_takes_for_a_command(text: str, shown: str) -> None:
    assert printable(text) == shown
