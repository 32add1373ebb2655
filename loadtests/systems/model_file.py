"""A model of random weights: one Safetensors file, as a bucket of an origin holds it."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry, chunk_digest

BUCKET = "models"
BLOBS = "blobs"
"""The folder in which a blob store has its files."""
SIDE = 2048
"""Tensors are SIDE x SIDE of f16: 8 MiB each."""
TENSOR_BYTES = SIDE * SIDE * 2
_SHIFT_BYTES = 4096


@dataclass(frozen=True)
class ModelFile:
    root: Path
    """The origin's folder."""
    name: str
    tensor_bytes: int
    """Of all tensors together; the file also has a header."""

    @property
    def key(self) -> str:
        """Its place below the origin."""
        return f"{BUCKET}/{self.name}"

    @property
    def path(self) -> Path:
        return self.root / self.key

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


def model_file(root: Path, size_bytes: int, name: str = "model.safetensors") -> ModelFile:
    """Writes one below `root`, with tensors of `size_bytes` together, rounded up to whole ones."""
    tensors = -(-size_bytes // TENSOR_BYTES)
    model = ModelFile(root, name, tensors * TENSOR_BYTES)
    model.path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({f"layer.{number:04d}": _entry(number) for number in range(tensors)}).encode()
    text += b" " * (-len(text) % 8)
    # Random bytes are slow to make, so that all tensors take them from one pool, each from another
    # place on.
    pool = memoryview(os.urandom(TENSOR_BYTES + tensors * _SHIFT_BYTES))
    with model.path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number in range(tensors):
            start = number * _SHIFT_BYTES
            file.write(pool[start : start + TENSOR_BYTES])
    return model


def publish(model: ModelFile, *names: str) -> list[str]:
    """Stores the model in a blob store at the origin's root, with a manifest for each name.

    Returns the digests of the manifests.
    """
    with model.path.open("rb") as file:
        chunks = tuple(chunk_digest(chunk) for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))
    blob = Blob(model.size_bytes, chunks)
    place = model.root / BLOBS / blob.digest[:2] / blob.digest
    place.parent.mkdir(parents=True)
    place.hardlink_to(model.path)
    folder = model.root / "manifests"
    folder.mkdir()
    manifests = [Manifest((ManifestEntry(name, blob=blob),)) for name in names]
    for manifest in manifests:
        (folder / f"{manifest.digest}.json").write_bytes(manifest.to_bytes())
    return [manifest.digest for manifest in manifests]


def _entry(number: int) -> dict[str, object]:
    """Names are in the order of the file."""
    start = number * TENSOR_BYTES
    return {"dtype": "F16", "shape": [SIDE, SIDE], "data_offsets": [start, start + TENSOR_BYTES]}
