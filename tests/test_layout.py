"""The shape of the tree: import roots that never hide the standard library."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from hotplate.platform import cli

ROOT = Path(__file__).parent.parent
SOURCES = ("platform", "serving", "cache", "autoscaler", "deploy", "machine")
BESIDE = {"hotplate", "README.md", "manifests", "__pycache__"}


def test_no_source_folder_is_a_package() -> None:
    found = [path for name in SOURCES for path in (ROOT / name).rglob("__init__.py")]
    assert found == []


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_root_holds_its_part_of_hotplate_and_little_else(name: str) -> None:
    assert {path.name for path in (ROOT / name).iterdir()} <= BESIDE


@pytest.mark.parametrize("folder", [".", "platform", "platform/hotplate", "tests"])
def test_import_platform_is_the_standard_library_from_everywhere(folder: str) -> None:
    code = "import platform; print(platform.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / folder,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).parent == Path(os.__file__).parent


def test_no_file_is_longer_than_450_lines() -> None:
    files = [path for name in SOURCES for path in (ROOT / name).rglob("*.py")]
    assert [p for p in files if len(p.read_text().splitlines()) > 450] == []


def test_the_changelog_starts_with_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = [s for s in (ROOT / "CHANGELOG.md").read_text().splitlines() if s[:3] == "## "]
    assert headings[0].startswith(f"## {version}")


def test_the_command_works_from_a_checkout_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(SystemExit):
        cli.parser().parse_args(["--version"])
    assert "not installed" in capsys.readouterr().out
