"""A model of random weights, published as the platform does it: a blob and a manifest."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from hotplate.cache.manifest import CHUNK_BYTES, Blob, Entry, Manifest, chunk_digest

FILE = "model.safetensors"
SIDE = 2048
"""Tensors are SIDE x SIDE of bf16: 8 MiB each."""
TENSOR_BYTES = SIDE * SIDE * 2


@dataclass(frozen=True)
class PublishedModel:
    """Where it is below the origin, and how much of it are tensors."""

    manifest: str
    """The manifest's digest."""
    blob_path: str
    """The file's place below the origin."""
    tensor_bytes: int


def publish(root: Path, tensors: int) -> PublishedModel:
    """Write a file of that many tensors into the blob store at `root`."""
    draft = root / FILE
    draft.parent.mkdir(parents=True, exist_ok=True)
    _write(draft, tensors)
    blob = _blob(draft)
    target = root / "blobs" / blob.digest[:2] / blob.digest
    target.parent.mkdir(parents=True)
    draft.rename(target)
    manifest = Manifest((Entry(FILE, blob=blob),))
    (root / "manifests").mkdir()
    (root / "manifests" / f"{manifest.digest}.json").write_bytes(manifest.to_bytes())
    return PublishedModel(manifest.digest, str(target.relative_to(root)), tensors * TENSOR_BYTES)


def _write(path: Path, tensors: int) -> None:
    """A Safetensors file: length of the header, header, tensors; names in the file's order."""
    header = {
        f"layer.{number:04d}": {
            "dtype": "BF16",
            "shape": [SIDE, SIDE],
            "data_offsets": [number * TENSOR_BYTES, (number + 1) * TENSOR_BYTES],
        }
        for number in range(tensors)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(tensors):
            file.write(os.urandom(TENSOR_BYTES))


def _blob(path: Path) -> Blob:
    with path.open("rb") as file:
        chunks = tuple(chunk_digest(chunk) for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))
    return Blob(path.stat().st_size, chunks)
