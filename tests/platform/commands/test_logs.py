from __future__ import annotations

import io

from rich.console import Console

from hotplate.platform.commands.logs import show_fresh


def printed(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    output = io.StringIO()
    show_fresh(Console(file=output, soft_wrap=True), before, after)
    return output.getvalue().splitlines()


def test_logs_that_are_followed_show_each_line_once() -> None:
    shown = {"chat-0": ["loading", "[ready]"]}
    assert printed({}, shown) == ["chat-0", "  loading", "  [ready]"]
    assert printed(shown, shown) == []
    assert printed(shown, {"chat-0": ["loading", "[ready]", "hello"]}) == ["chat-0", "  hello"]


def test_a_replica_that_has_printed_nothing_yet_is_named_once() -> None:
    silent: dict[str, list[str]] = {"chat-0": []}
    assert printed({}, silent) == ["chat-0"]
    assert printed(silent, silent) == []
