"""What `torch.compile` and Triton have compiled, for the replicas after: as manifests.

Compiled code fits one set of models, one environment and one kind of GPU; all of them are its key,
and so is the organization: what a replica writes, no other organization's replica loads. A replica
keeps writing to its cache, so what it is given is a copy, and its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import pack_tree
from hotplate.machine.foreign_folder import ForeignFolder, aside, aside_for_long
from hotplate.serving.replica.node_agent import TreeSource

MOST_BYTES = 1 << 30
MOST_FILES = 20_000
"""Of one replica: far more than a large model's kernels, and no way to fill the store."""
PUBLISH_S = 300.0
"""How long they may be copied."""
TAKE_S = 10.0
"""How long a start waits for it; what is compiled again takes longer."""
KEYS_KEPT = 20
"""Of this node: what other keys have at an origin that is its own goes, as nothing names it."""
_KIND = "compiled"

log = logging.getLogger("hotplate.compiled")


def variables(folder: Path) -> dict[str, str]:
    """The environment variables that make a process keep what it compiles below `folder`."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def key(organization: str, models: Iterable[str], environment: str, gpu: str) -> str:
    """What compiled code is known by: whose it is, the manifests of its models, the digest of the
    environment with all versions, the GPU's name, and the machine's kind and C library."""
    machine = [platform.machine(), *platform.libc_ver()]
    parts = [organization, sorted(models), environment, gpu, machine]
    return blake3(json.dumps(parts).encode()).hexdigest()


class CompileCache:
    """What there is in one blob store, and which of it this node has used."""

    def __init__(self, root: Path, blobs: BlobStore, agent: TreeSource, gpu: str = "") -> None:
        """`root` is a folder of our own; `gpu` names the GPUs of this node."""
        self.gpu = gpu
        self._used = root / "used"
        self._drafts = root / "drafts"
        shutil.rmtree(self._drafts, ignore_errors=True)  # of a process that was killed
        self._blobs = blobs
        self._agent = agent
        self._given: dict[Path, tuple[str, frozenset[str]]] = {}
        """The key of a replica's folder, and which files were in it at its start."""

    async def take(self, key: str, folder: Path) -> None:
        """Fill a replica's cache with what was published; empty where nothing can be had."""
        await asyncio.to_thread(folder.mkdir)
        try:
            async with asyncio.timeout(TAKE_S):
                note = await asyncio.to_thread(self._blobs.get_note, f"{_KIND}/{key}")
                if note is not None:
                    tree = await self._agent.tree(str(note["manifest"]), wait="view")
                    await asyncio.to_thread(_copy, Path(tree.root), folder)
                    await asyncio.to_thread(self._use, key, str(note["manifest"]))
        except (CacheError, OSError, KeyError) as error:  # TimeoutError is an OSError
            log.warning("compiled code %s is not used: %r", key, error)
        self._given[folder] = key, await aside(_names, folder)

    async def keep(self, folder: Path, *, ended: bool) -> None:
        """Publish a replica's cache if there is more in it now, in place of what was published.

        Of a folder that was not filled here, nothing is known, and it is left alone.
        """
        if folder not in self._given:
            return
        key, before = self._given.pop(folder) if ended else self._given[folder]
        try:
            names = await aside(_names, folder)
            if not names <= before:
                await aside_for_long(self._publish, key, folder)
                if not ended:
                    self._given[folder] = key, names
        except (CacheError, OSError, ValueError) as error:
            log.warning("compiled code of %s is not published: %s", folder, error)

    def manifests(self) -> set[str]:
        """Those that this node has used or published last."""
        return {path.read_text(encoding="utf-8") for path in self._used.glob("*")}

    def _publish(self, key: str, folder: Path) -> None:
        self._drafts.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._drafts) as draft:
            with ForeignFolder.open(folder, PUBLISH_S) as theirs:
                for name, fd in theirs.files(MOST_FILES, MOST_BYTES):
                    _copy_out(fd, Path(draft, name))
            manifest = pack_tree(Path(draft), self._blobs)
        self._blobs.put_note(f"{_KIND}/{key}", {"manifest": manifest.digest})
        self._use(key, manifest.digest)
        log.info("compiled code %s is published: %d bytes", key, manifest.size_bytes)

    def _use(self, key: str, manifest: str) -> None:
        self._used.mkdir(parents=True, exist_ok=True)
        (self._used / key).write_text(manifest, encoding="utf-8")
        used = sorted(self._used.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in used[:-KEYS_KEPT]:
            path.unlink(missing_ok=True)


def _names(folder: Path) -> frozenset[str]:
    """The files there; the replica whose folder it is may run and may be hostile."""
    with ForeignFolder.open(folder) as theirs:
        return frozenset(name for name, _ in theirs.files(MOST_FILES, MOST_BYTES))


def _copy_out(fd: int, target: Path) -> None:
    """No more than it had when it was counted: it may grow meanwhile."""
    left = os.fstat(fd).st_size
    if left > MOST_BYTES:
        raise ValueError(f"{target.name} has more than {MOST_BYTES >> 30} GiB")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as copy:
        while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            copy.write(piece)
            left -= len(piece)


def _copy(source: Path, target: Path) -> None:
    """Each file under its name only when it is whole: whoever waits may have given up."""
    for folder, _, names in os.walk(source):
        into = target / os.path.relpath(folder, source)
        into.mkdir(exist_ok=True)
        for name in names:
            draft = into / f".{name}.draft"
            shutil.copyfile(Path(folder, name), draft)
            draft.replace(into / name)
