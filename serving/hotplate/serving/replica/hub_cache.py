"""A hub's cache, as BentoML looks for it in a replica's folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from hotplate.cache.origins.hub_url import HubUrl

_COPIED_BYTES = 1 << 20
"""How much is copied at a time."""


def add_hub_model(cache: Path, beside: Path, url: HubUrl, files: Mapping[str, str]) -> None:
    """Put a model where a hub's client looks for it, with the list that spares it a query of the
    hub. `files` are paths on this node by the files' URLs. They are linked, or copied if they are
    on another disk, into `beside`, a folder that its readers cannot write to: a link is the agent's
    own file, which other replicas read too. `cache` belongs to the readers. Raises OSError if any
    of it exists already."""
    model = f"models--{url.model_id.replace('/', '--')}"
    snapshot = beside / model / "snapshots" / url.revision
    listed = {}
    for file_url, path in files.items():
        name = HubUrl.of(file_url).path
        target = snapshot / name
        target.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(Path(path), target)
        listed[name] = {"size": target.stat().st_size, "blob_id": ""}
    for folder, _, _ in os.walk(beside):
        os.chmod(folder, 0o755)  # its readers are another user, which sees no other replica's
    (cache / model / "trees").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another revision of the model made it
        (cache / model / "snapshots").symlink_to(snapshot.parent, target_is_directory=True)
    # huggingface_hub 2 asks a hub that is down for 20 s before it believes its cache without this.
    tree = json.dumps({"format_version": 1, "files": listed})
    (cache / model / "trees" / f"{url.revision}.json").write_text(tree, encoding="utf-8")


def _link_or_copy(source: Path, target: Path) -> None:
    """Neither follows a link at `target`, nor writes to what is there."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError:
        with source.open("rb") as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy, _COPIED_BYTES)
            os.fchmod(copy.fileno(), 0o444)
