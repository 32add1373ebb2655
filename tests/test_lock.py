"""What `make install` installs: what uv.lock says, by hash, whichever index it comes from."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")
_PUBLIC = {"pypi.org", "files.pythonhosted.org"}


def test_the_lock_is_what_the_project_asks_for(tmp_path: Path) -> None:
    checked = _uv("lock", "--check", "--offline", "--cache-dir", str(tmp_path))
    assert checked.returncode == 0, "make lock\n" + checked.stderr


def test_a_requirement_that_the_lock_does_not_know_is_noticed(tmp_path: Path) -> None:
    asked = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(asked.replace('"aiohttp>=3.14"', '"aiohttp>=99"'))
    (tmp_path / "uv.lock").write_bytes((ROOT / "uv.lock").read_bytes())
    assert _uv("lock", "--check", "--offline", "--project", str(tmp_path)).returncode != 0


def test_the_installer_is_the_one_of_the_lock() -> None:
    exported = _uv(
        *("export", "--frozen", "--quiet", "--no-header", "--no-annotate", "--no-emit-project"),
        *("--only-group", "installer"),
    )
    assert exported.stdout == (ROOT / "installer.txt").read_text()
    assert "--hash=sha256:" in exported.stdout


def test_everything_has_a_hash_and_comes_from_the_public_index() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    packages = [each for each in lock["package"] if each["name"] != "hotplate"]
    assert len(packages) > 100
    for package in packages:
        files = [*package.get("wheels", []), package.get("sdist", package["wheels"][0])]
        assert urlsplit(package["source"]["registry"]).hostname in _PUBLIC
        assert {urlsplit(file["url"]).hostname for file in files} <= _PUBLIC
        assert all(file["hash"].startswith("sha256:") for file in files)


def test_nothing_is_installed_without_a_hash(tmp_path: Path) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "--always-make", ".venv/installed", ".venv/demo-model"],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    words = shown.stdout.replace("{", ";").replace("&&", ";").replace("}", ";")
    installs = [part for part in words.split(";") if "pip install" in part]
    assert len(installs) == 4
    for command in installs:
        of_ours = "--no-deps --no-build-isolation --editable ." in command
        assert of_ours or "--require-hashes --only-binary :all:" in command


def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(UV), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
