from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.cache.manifest import CHUNK_BYTES, ManifestEntry
from hotplate.cache.origins.blob_source import checked_manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import SMALL_BYTES, pack_tree
from tests.support.cache.fakes import random_bytes

SITE = "lib/python3.11/site-packages"
LARGE = random_bytes(SMALL_BYTES + 1, 1)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    files = {
        "bin/tool": b"#!/bin/sh\n",
        f"{SITE}/a/__init__.py": b"",
        f"{SITE}/a/code.py": b"code",
        f"{SITE}/a/__pycache__/code.pyc": b"compiled",
        f"{SITE}/a/large.so": LARGE,
        f"{SITE}/b/model.safetensors": b"weights",
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / "bin/tool").chmod(0o755)
    (root / "lib64").symlink_to("lib")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")
    return root


def bytes_of(store: BlobStore, entry: ManifestEntry) -> bytes:
    assert entry.blob is not None
    offset, length = entry.span
    return b"".join(store.chunks(entry.blob))[offset : offset + length]


def test_every_file_folder_and_link_is_kept_with_mode_and_time(tree: Path, tmp_path: Path) -> None:
    store = BlobStore(f"file://{tmp_path}/store")
    manifest = pack_tree(tree, store)
    assert checked_manifest(manifest.digest, manifest.to_bytes()) == manifest
    assert store.get_manifest(manifest.digest) == manifest
    entries = {entry.path: entry for entry in manifest.entries}
    there = {str(path.relative_to(tree)) for path in tree.rglob("*")}
    assert entries.keys() == there - {"pipe"}
    for path, entry in entries.items():
        if entry.blob is not None:
            assert bytes_of(store, entry) == (tree / path).read_bytes()
            assert entry.mtime == (tree / path).stat().st_mtime
    assert entries["lib64"].link == "lib" and entries["empty"].is_folder
    assert entries["bin/tool"].mode == 0o755
    assert entries[f"{SITE}/a/large.so"].part is None
    assert entries[f"{SITE}/b/model.safetensors"].streamed  # not part of a pack
    compiled, plain = entries[f"{SITE}/a/__pycache__/code.pyc"], entries[f"{SITE}/a/code.py"]
    assert compiled.blob != plain.blob


def test_small_files_share_blobs_and_a_change_leaves_the_others_alone(tmp_path: Path) -> None:
    store = BlobStore(f"file://{tmp_path}/store")
    root = tmp_path / "tree"
    for package in range(4):
        (root / SITE / f"p{package}").mkdir(parents=True)
        for number in range(300):
            name = root / SITE / f"p{package}" / f"{number}.py"
            name.write_bytes(random_bytes(10_000, 1000 * package + number))
    first = set(pack_tree(root, store).blobs())
    assert len(first) == 4 and all(blob.size_bytes <= CHUNK_BYTES for blob in first)
    (root / SITE / "p1" / "0.py").write_bytes(b"changed")
    second = set(pack_tree(root, store).blobs())
    assert len(first & second) == 3
