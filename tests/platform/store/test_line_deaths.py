"""What is killed while it changes a whole installation: nothing is lost, and the next try ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.control_plane.line_deaths import WORKS, line_deaths

MOST = 3
"""Moments that are tried here; `python loadtests/storm.py moments` tries them all."""
LINES = {
    "rotate the keys": 160,
    "rotate sealed keys": 100,
    "backup": 300,
    "restore": 300,
    "migrate up": 300,
    "migrate down": 300,
}


@pytest.mark.parametrize("name", WORKS)
def test_whatever_line_it_is_killed_at_nothing_is_lost(tmp_path: Path, name: str) -> None:
    lines, deaths = line_deaths(name, tmp_path, MOST)
    assert lines >= LINES[name] and deaths == MOST
