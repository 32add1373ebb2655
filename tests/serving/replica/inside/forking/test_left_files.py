"""What imports leave is read whole, but not without end, and is put where it is not there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hotplate.serving.replica.inside.forking.left_files import MOST_BYTES, MOST_FILES, LeftFiles


def test_what_is_there_is_put_again_and_nothing_else_is_changed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    (left / "home/.cache").mkdir(parents=True)
    (left / "home/.cache/settings").write_bytes(b"mine\0")
    (left / "home/run").write_text("")
    (left / "home/run").chmod(0o700)
    (left / "link").symlink_to("home/nowhere")
    os.mkfifo(left / "pipe")
    files = LeftFiles(str(left))
    assert files.sentence() == ""
    shutil.rmtree(left)
    (left / "home").mkdir(parents=True)
    (left / "home/run").write_text("a replica's own")
    files.put()
    found = sorted(str(path.relative_to(left)) for path in left.rglob("*"))
    assert found == ["home", "home/.cache", "home/.cache/settings", "home/run", "link"]
    assert (left / "home/.cache/settings").read_bytes() == b"mine\0"
    assert (left / "home/run").read_text() == "a replica's own"
    assert os.readlink(left / "link") == "home/nowhere"


def test_no_folder_has_no_files(tmp_path: Path) -> None:
    assert LeftFiles("").sentence() == LeftFiles(str(tmp_path / "nowhere")).sentence() == ""


def test_folders_below_each_other_are_no_way_to_run_out_of_stack(tmp_path: Path) -> None:
    before, deep = os.open(".", os.O_PATH), 600
    try:
        os.chdir(tmp_path)
        for _ in range(deep):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.fchdir(before)
        os.close(before)
    assert LeftFiles(str(tmp_path)).sentence() == ""


def test_too_many_or_too_large_ones_are_said(tmp_path: Path) -> None:
    said = f"imports left more than {MOST_FILES} files or 4 MiB in {tmp_path}"
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES)
    assert LeftFiles(str(tmp_path)).sentence() == ""
    (tmp_path / "one more").write_text("x")
    assert LeftFiles(str(tmp_path)).sentence() == said
    (tmp_path / "large").unlink()
    for number in range(MOST_FILES):
        (tmp_path / str(number)).touch()
    assert LeftFiles(str(tmp_path)).sentence() == said
