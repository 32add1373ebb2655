"""What builds print is kept from its first line, and the oldest of it goes."""

from __future__ import annotations

import os
from pathlib import Path

from hotplate.deploy.cluster.builds.kept_logs import TAIL_LINES, KeptLogs


def test_all_lines_are_in_the_file_and_the_last_ones_known(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path / "logs").begin("digest")
    for number in range(TAIL_LINES + 1):
        kept.add(str(number), f"line {number}\x1b[31m")
    assert kept.path.read_text().splitlines()[0] == "line 0\x1b[31m"
    assert kept.tail()[0] == "line 1"
    assert len(kept.tail()) == TAIL_LINES
    assert kept.since == str(TAIL_LINES)
    kept.begin_anew("It was killed.")
    assert kept.since == ""
    assert kept.path.read_text().splitlines()[-1] == "# It was killed."
    kept.close()


def test_another_build_of_it_has_another_file(tmp_path: Path) -> None:
    """Who reads the earlier one by its name goes on with this."""
    logs = KeptLogs(tmp_path)
    first = logs.begin("digest")
    first.add("1", "first")
    before = os.stat(first.path).st_ino
    with first.path.open() as reader:
        second = logs.begin("digest")
        assert reader.read() == "first\n"
    assert os.stat(second.path).st_ino != before
    assert second.path.read_text() == ""
    first.close()
    second.close()


def test_the_oldest_go(tmp_path: Path) -> None:
    logs = KeptLogs(tmp_path, most_files=3)
    for number in range(4):
        logs.path(str(number)).touch()
        os.utime(logs.path(str(number)), (number, number))
    logs.begin("last").close()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["2", "3", "last"]


def test_large_ones_go_before_there_are_many(tmp_path: Path) -> None:
    logs = KeptLogs(tmp_path, most_bytes=10)
    for number in range(3):
        logs.path(str(number)).write_text("12345")
        os.utime(logs.path(str(number)), (number, number))
    logs.begin("last").close()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["1", "2", "last"]
