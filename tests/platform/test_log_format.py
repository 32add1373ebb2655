from __future__ import annotations

import pytest

from hotplate.platform.log_format import for_people


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("14:05:01 INFO    hotplate.events: chat: it is running", "14:05:01  chat: it is running"),
        ("14:05:01 ERROR   hotplate.controller: no: 1", "14:05:01  no: 1"),
        ("14:05:01 INFO    hotplate.engine: replica a: STARTING → READY", ""),
        ("14:05:01 WARNING hotplate.engine: replica a: it crashed", ""),
        ('  File "x.py", line 1, in f', ""),
        ("", ""),
    ],
)
def test_the_terminal_shows_events_and_errors_and_no_modules_name(line: str, shown: str) -> None:
    assert for_people(line) == shown
