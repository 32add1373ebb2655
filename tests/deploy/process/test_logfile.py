"""Logs as files."""

from __future__ import annotations

import threading
from pathlib import Path

from hotplate.deploy.process.logfile import append, tail, trim
from hotplate.deploy.process.printable import MOST_CHARS


def test_the_last_lines_are_read_over_block_borders(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f"{number} " + "é" * 300 for number in range(1000)]
    append(path, lines)
    for count in (0, 1, 250, 1000, 5000):
        assert tail(path, count) == lines[len(lines) - min(count, 1000) :]


def test_no_log_has_no_lines(tmp_path: Path) -> None:
    assert tail(tmp_path / "absent", 5) == []
    trim(tmp_path / "absent")


def test_one_line_without_an_end_is_cut_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (9 << 20))
    assert [len(line) for line in tail(path, 3)] == [MOST_CHARS]
    trim(path, max_bytes=1000, kept_bytes=100)
    assert tail(path, 1) == ["x" * 100]


def test_a_log_that_is_too_long_keeps_its_end_and_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("a", buffering=1) as writer:
        writer.writelines(f"line {number}\n" for number in range(100))
        trim(path, max_bytes=500, kept_bytes=100)
        assert tail(path, 1000)[-1] == "line 99"
        assert tail(path, 1000)[0].startswith("hotplate: this log had grown to 0 KiB; all but its")
        assert path.stat().st_size < 250
        writer.write("more\n")
    assert tail(path, 2) == ["line 99", "more"]
    trim(path, max_bytes=500, kept_bytes=100)
    assert tail(path, 2) == ["line 99", "more"]


def test_a_log_begins_with_what_was_done_to_it_also_while_its_process_writes_on(
    tmp_path: Path,
) -> None:
    path, stop = tmp_path / "log", threading.Event()

    def write() -> None:
        with path.open("ab", buffering=0) as log:
            while not stop.is_set():
                log.write(b"more\n" * 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        cuts = 0
        while cuts < 50:
            before = path.stat().st_size if path.exists() else 0
            trim(path, max_bytes=5000, kept_bytes=1000)
            if before > 5000:
                cuts += 1
                with path.open() as log:
                    assert log.readline().startswith("hotplate: this log had grown to ")
    finally:
        stop.set()
        writer.join()
