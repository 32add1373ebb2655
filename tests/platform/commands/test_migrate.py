from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotplate.platform.cli import main
from hotplate.platform.store import schema
from hotplate.platform.store.database import Database


def test_the_schema_is_looked_at_taken_down_and_brought_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def migrate(*flags: str) -> tuple[int, dict[str, object]]:
        status = main(["migrate", "--data", str(tmp_path), "--json", *flags])
        return status, json.loads(capsys.readouterr().out)

    code = schema.head()
    assert migrate("--check") == (
        1,
        {"revision": "", "was": "", "code": code, "current": False},
    )
    assert not (tmp_path / "hotplate.db").exists()
    assert migrate() == (0, {"revision": code, "was": "", "code": code, "current": True})
    assert migrate("--check") == (0, {"revision": code, "was": code, "code": code, "current": True})
    assert migrate("--to", "8") == (
        0,
        {"revision": "0008", "was": code, "code": code, "current": False},
    )
    assert migrate("--check")[0] == 1
    assert migrate("--to", "0008")[1]["was"] == "0008"
    assert migrate()[1]["revision"] == code


def test_the_schema_is_taken_down_while_a_platform_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(f"sqlite:///{tmp_path}/hotplate.db")
    assert main(["migrate", "--data", str(tmp_path), "--to", "0007"]) == 0
    database.close()
    said = capsys.readouterr().out
    assert said.startswith("the database's schema is of revision 0007, and was of ")
    assert main(["migrate", "--data", str(tmp_path), "--check"]) == 1


@pytest.mark.parametrize("revision", ["9999", "0000", "head", "", "-1", "v0001"])
def test_a_revision_that_is_not_known_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], revision: str
) -> None:
    assert main(["migrate", "--data", str(tmp_path), f"--to={revision}"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"hotplate: --to {revision} is no revision that this hotplate knows")
    assert said.count("\n") == 1
