"""Third-party files of the dashboard: those of `vendor.toml`, unchanged and with their licenses."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path

from hotplate.platform.dashboard import assets

DASHBOARD = Path(assets.__file__).parent
VENDOR = DASHBOARD / "vendor"
PACKAGES = tomllib.loads((DASHBOARD / "vendor.toml").read_text())["package"]
FILES = [file for package in PACKAGES for file in package["file"]]


def test_each_file_is_as_it_was_taken() -> None:
    for file in FILES:
        content = (VENDOR / file["path"]).read_bytes()
        assert sha256(content).hexdigest() == file["sha256"], file["path"]


def test_there_is_no_other_file() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {file["path"] for file in FILES}


def test_each_package_says_which_it_is_and_brings_its_license() -> None:
    for package in PACKAGES:
        assert package["version"] and package["license"] in ("MIT", "Apache-2.0")
        (license_file,) = [f["path"] for f in package["file"] if f["of"] == "LICENSE"]
        assert "opyright" in (VENDOR / license_file).read_text() or "Apache" in license_file
