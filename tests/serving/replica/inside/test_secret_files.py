from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.replica.inside import secret_files
from hotplate.serving.replica.inside.secret_files import OWNER, place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def given(tmp_path: Path, **files: str) -> dict[str, Any]:
    named = {path.replace("__", "/"): text for path, text in files.items()}
    return {"folder": str(tmp_path / "memory"), "of": str(tmp_path), "files": named}


def test_each_file_is_its_owners_alone_and_lies_in_memory(tmp_path: Path, home: Path) -> None:
    place(str(home), given(tmp_path, keys__of__a="ä\n", keys__b="b", c=""))
    read = {
        str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()
    }
    assert read == {"keys/of/a": "ä\n", "keys/b": "b", "c": ""}
    for path in read:
        assert stat.S_IMODE((home / path).stat().st_mode) == 0o400
        assert (home / path).resolve().parent == tmp_path / "memory"
    assert stat.S_IMODE((tmp_path / "memory").stat().st_mode) == 0o700
    assert (tmp_path / "memory" / OWNER).read_text() == str(tmp_path)
    place(str(home), given(tmp_path, keys__of__a="new", keys__b="b", c=""))
    assert (home / "keys" / "of" / "a").read_text() == "new", "as before each step of a build"


@pytest.mark.parametrize("there", ["folder", "link", "file"])
def test_no_link_is_followed_and_nothing_is_overwritten(
    tmp_path: Path, home: Path, there: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    if there == "folder":
        (home / "keys").symlink_to(outside)
    elif there == "link":
        (home / "keys").mkdir()
        (home / "keys" / "a").symlink_to(outside / "a")
    else:
        (home / "keys").mkdir()
        (home / "keys" / "a").write_text("theirs")
    with pytest.raises(OSError, match=r"The file 'keys/a' of a secret cannot be put below") as why:
        place(str(home), given(tmp_path, keys__a="hidden-value"))
    assert "hidden-value" not in str(why.value)
    assert os.listdir(outside) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, home: Path) -> None:
    (tmp_path / "memory").symlink_to(home)
    with pytest.raises(OSError, match=r"cannot be put into memory at .*; ask 'hotplate doctor'"):
        place(str(home), given(tmp_path, a="a"))
    assert os.listdir(home) == []


def test_as_a_program_it_becomes_another_one(tmp_path: Path, home: Path) -> None:
    text = Path(secret_files.__file__).read_text()
    program = [sys.executable, "-I", "-S", "-c", text, "/bin/sh", "-c", 'cat "$BENTOML_HOME/k/a" -']

    def run(**files: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            program,
            input=json.dumps(given(tmp_path, **files)),
            env={"BENTOML_HOME": str(home), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(k__a="hello").stdout == "hello"
    failed = run(k__a__b="x")
    assert failed.returncode == 1
    assert failed.stderr.startswith("The file 'k/a/b' of a secret cannot be put below")
