"""The folders of one replica: its private copy of the bento and its `BENTOML_HOME`."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from hotplate.cache.hub_url import HubUrl

LINK_ABOVE_BYTES = 1 << 20
"""Larger files are linked, not copied: they are data, which code reads and does not change."""


def copy_bento(tree: Path, to: Path) -> None:
    """Copy a bento's files, writable and with their execute bits; link those over 1 MiB."""
    for folder, _, names in os.walk(tree):
        target_folder = to / Path(folder).relative_to(tree)
        target_folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            source, target = Path(folder, name), target_folder / name
            about = source.stat()
            if about.st_size > LINK_ABOVE_BYTES:
                target.symlink_to(source)
            else:
                shutil.copyfile(source, target)
                target.chmod(stat.S_IMODE(about.st_mode) | stat.S_IWUSR)


def add_model(home: Path, name: str, version: str, tree: Path) -> None:
    """Make a model's files a member of the model store of a `BENTOML_HOME`, by a link."""
    folder = home / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / version).symlink_to(tree, target_is_directory=True)
    (folder / "latest").write_text(version, encoding="utf-8")


def add_hub_model(cache: Path, url: HubUrl, files: Mapping[str, str]) -> None:
    """Put a model where a hub's client looks for it, with the list that spares it asking the hub.

    `files` are paths on this node by the files' URLs; they are linked, or copied where they lie
    on another disk. Raises OSError.
    """
    model = cache / f"models--{url.model_id.replace('/', '--')}"
    listed = {}
    for file_url, path in files.items():
        name = HubUrl.of(file_url).path
        target = model / "snapshots" / url.revision / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(path)
        except OSError:
            shutil.copyfile(path, target)
        listed[name] = {"size": target.stat().st_size, "blob_id": ""}
    # huggingface_hub 2 asks a hub that is down for 20 s before it believes its cache without this.
    (model / "trees").mkdir(exist_ok=True)
    tree = json.dumps({"format_version": 1, "files": listed})
    (model / "trees" / f"{url.revision}.json").write_text(tree, encoding="utf-8")
