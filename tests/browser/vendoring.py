"""`make vendor`: the dashboard's third-party files, from their npm packages.

`vendor.toml` says which ones; their digests are written into it.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[2] / "platform/hotplate/platform/dashboard"
LIST = DASHBOARD / "vendor.toml"


def packages() -> list[dict[str, Any]]:
    """What `vendor.toml` lists."""
    listed: list[dict[str, Any]] = tomllib.loads(LIST.read_text())["package"]
    return listed


def main() -> None:
    """Takes all of them anew. Exits where npm or its registry is missing."""
    digests = []
    for package in packages():
        named = f"{package['name']}@{package['version']}"
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(
                ["npm", "pack", "--silent", named], cwd=folder, check=True, capture_output=True
            )
            with tarfile.open(Path(folder, packed.stdout.decode().split()[-1])) as tar:
                digests += [_taken(tar, file) for file in package["file"]]
    rest = iter(digests)
    LIST.write_text(re.sub('sha256 = ".*"', lambda _: f'sha256 = "{next(rest)}"', LIST.read_text()))


def _taken(tar: tarfile.TarFile, file: dict[str, str]) -> str:
    """Writes one file; its SHA-256."""
    member = tar.extractfile(f"package/{file['of']}")
    assert member is not None
    content = member.read()
    if append := file.get("append"):
        content = content.rstrip() + f"\n{append}\n".encode()
    (DASHBOARD / "vendor" / file["path"]).write_bytes(content)
    return sha256(content).hexdigest()


if __name__ == "__main__":
    main()
