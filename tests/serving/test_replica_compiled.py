"""Compiled code of one replica, for the next one of the same model, versions and GPU."""

from __future__ import annotations

from pathlib import Path

from hotplate.cache.blobs import BlobStore
from hotplate.serving.replica import compiled
from hotplate.serving.replica.shelf import Tree

VERSIONS = {"torch": "2.5.0", "triton": "3.1.0"}
KEY = compiled.key("a" * 64, VERSIONS, "H100")


class Folder:
    def __init__(self, root: Path) -> None:
        self.root = str(root)


class FakeAgent:
    """Writes a tree out of the store."""

    def __init__(self, blobs: BlobStore, folder: Path) -> None:
        self._blobs = blobs
        self._folder = folder

    async def tree(self, manifest: str, wait: str) -> Tree:
        for entry in self._blobs.get_manifest(manifest).entries:
            path = self._folder / entry.path
            if entry.blob is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            offset, length = entry.span
            path.write_bytes(b"".join(self._blobs.chunks(entry.blob))[offset : offset + length])
            path.chmod(0o444)
        return Folder(self._folder)


def kernel(folder: Path, variable: str) -> Path:
    """A file in the cache that the variable names."""
    path = Path(compiled.variables(folder)[variable], "ab", "kernel")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_each_part_of_the_key_matters() -> None:
    others = {
        compiled.key("b" * 64, VERSIONS, "H100"),
        compiled.key("a" * 64, {**VERSIONS, "torch": "2.6.0"}, "H100"),
        compiled.key("a" * 64, VERSIONS, "L4"),
    }
    assert len(others) == 3 and KEY not in others
    assert compiled.key("a" * 64, dict(reversed(VERSIONS.items())), "H100") == KEY


async def test_what_one_replica_compiled_the_next_finds_and_may_change(tmp_path: Path) -> None:
    blobs = BlobStore(f"file://{tmp_path}/store")
    agent = FakeAgent(blobs, tmp_path / "view")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    assert not await compiled.restore(blobs, agent, KEY, second)
    assert await compiled.publish(blobs, KEY, first) is None
    for variable in compiled.variables(first):
        kernel(first, variable).write_text(variable)
    assert await compiled.publish(blobs, KEY, first) is not None
    own = kernel(second, "TRITON_CACHE_DIR")
    own.write_text("newer")
    assert await compiled.restore(blobs, agent, KEY, second)
    assert own.read_text() == "newer"
    restored = kernel(second, "TORCHINDUCTOR_CACHE_DIR")
    assert restored.read_text() == "TORCHINDUCTOR_CACHE_DIR"
    restored.write_text("it is the replica's own")
    assert not list(second.rglob("*.draft"))
