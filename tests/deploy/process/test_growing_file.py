"""Text that grows while it is read."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path

import pytest

from hotplate.deploy.process.growing_file import PIECE_BYTES, GrowingFile, followed
from hotplate.deploy.process.logfile import trim


def test_the_last_lines_come_first_and_then_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = GrowingFile(path, lines=2)
    assert file.read() == ""
    path.write_text("one\ntwo\nthree\n")
    assert [file.read(), file.read()] == ["two\nthree\n", ""]
    with path.open("a") as log:
        log.write("four\r\nfive\rsix")
    assert file.read() == "four\nfive\nsix"
    file.close()


@pytest.mark.parametrize(("there", "first"), [("", [""]), ("one\ntwo\n", ["two\n"])])
async def test_an_empty_piece_is_between_what_was_there_and_what_comes(
    tmp_path: Path, there: str, first: list[str]
) -> None:
    path = tmp_path / "log"
    path.write_text(there)
    goes_on = iter([True, True])
    pieces = []
    async with aclosing(followed(path, 1, lambda: next(goes_on, False))) as come:
        async for piece in come:
            pieces.append(piece)
            if pieces == [*first, ""]:
                with path.open("a") as log:
                    log.write("new\n")
    assert pieces == [*first, "", "new\n"]


def test_no_character_is_cut_wherever_the_writer_pauses(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    file = GrowingFile(path, lines=9)
    text, said = "k\N{LATIN SMALL LETTER A WITH DIAERESIS}se \N{CHEESE WEDGE}\n", ""
    for byte in text.encode():
        with path.open("ab") as log:
            log.write(bytes([byte]))
        piece = file.read()
        piece.encode()
        said += piece
    assert said == text


def test_a_file_that_replaces_another_is_read_from_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    file = GrowingFile(path, lines=9)
    assert file.read() == "old\n"
    (tmp_path / "new").write_text("new\n")
    (tmp_path / "new").replace(path)
    assert [file.read(), file.read()] == ["new\n", ""]


def test_a_link_is_not_followed_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "log").symlink_to(tmp_path / "token")
    assert GrowingFile(tmp_path / "log", lines=9).read() == ""
    os.mkfifo(tmp_path / "pipe")
    assert GrowingFile(tmp_path / "pipe", lines=9).read() == ""


def test_what_steers_a_terminal_is_a_symbol(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b]0;title\x07\tbold\x1b[1m \xff\xc2\x9b\n")
    assert GrowingFile(path, lines=9).read() == "␛]0;title␇\tbold \N{REPLACEMENT CHARACTER}\n"


def test_a_long_log_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    file = GrowingFile(path, lines=9)
    file.read()
    path.write_bytes(b"x" * (PIECE_BYTES + 1))
    assert [len(file.read()), len(file.read()), file.read()] == [PIECE_BYTES, 1, ""]


def test_one_that_is_cut_goes_on_where_it_was_read_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(1000)))
    file = GrowingFile(path, lines=1)
    assert file.read() == "line 999\n"
    with path.open("a") as log:
        log.write("unread\n")
    trim(path, max_bytes=2000, kept_bytes=1000)
    assert [file.read(), file.read()] == ["unread\n", ""]


def test_one_of_which_unread_lines_were_cut_away_is_read_from_its_note(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n" * 3000)
    file = GrowingFile(path)
    file.read()
    path.write_text("hotplate: this log had grown\nnew\n")
    assert file.read() == "hotplate: this log had grown\nnew\n"


def test_all_of_one_is_read_where_nobody_says_how_much(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("line\n" * 100)
    assert GrowingFile(path).read() == "line\n" * 100
