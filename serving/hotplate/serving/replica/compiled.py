"""What `torch.compile` and Triton have compiled, for all nodes of a cluster: as manifests.

Compiled code fits one model, one set of versions and one kind of GPU; all of them are its key.
A replica keeps writing to its cache, so what is restored is a copy, and its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from blake3 import blake3

from hotplate.cache.blobs import BlobStore
from hotplate.cache.errors import CacheError
from hotplate.cache.packing import pack_tree
from hotplate.serving.replica.shelf import Viewer

_KIND = "compiled"


def variables(folder: Path) -> dict[str, str]:
    """The environment variables that make a process keep what it compiles below `folder`."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def key(model: str, versions: Mapping[str, str], gpu: str) -> str:
    """What compiled code is known by: the manifest of its model, the versions of all that has a
    part in it (torch, triton, the driver …), and the GPU's name."""
    return blake3(json.dumps([model, dict(versions), gpu], sort_keys=True).encode()).hexdigest()


async def publish(blobs: BlobStore, key: str, folder: Path) -> str | None:
    """Puts a replica's cache into the store, in place of an earlier one; the manifest's digest.

    None when there is nothing in it. Raises CacheError, and OSError for what cannot be read.
    """
    return await asyncio.to_thread(_publish, blobs, key, folder)


async def restore(blobs: BlobStore, agent: Viewer, key: str, folder: Path) -> bool:
    """Fills a replica's cache with what was published; whether there was anything.

    What the folder has already stays. Raises CacheError, and OSError for a full disk.
    """
    note = await asyncio.to_thread(blobs.get_note, f"{_KIND}/{key}")
    if note is None:
        return False
    try:
        tree = await agent.tree(str(note["manifest"]), wait="view")
    except KeyError as error:
        raise CacheError(f"note {_KIND}/{key} names no manifest; publish it again") from error
    await asyncio.to_thread(_copy, Path(tree.root), folder)
    return True


def _publish(blobs: BlobStore, key: str, folder: Path) -> str | None:
    if not any(path.is_file() for path in folder.rglob("*")):
        return None
    manifest = pack_tree(folder, blobs)
    blobs.put_note(f"{_KIND}/{key}", {"manifest": manifest.digest})
    return manifest.digest


def _copy(source: Path, target: Path) -> None:
    """Each file under its name only when it is whole: the replica may be looking already."""
    for folder, _, names in os.walk(source):
        into = target / os.path.relpath(folder, source)
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            draft = into / f".{name}.draft"
            if not (into / name).exists():
                shutil.copy(Path(folder, name), draft)
                draft.chmod(0o644)
                draft.replace(into / name)
