"""Code that `torch.compile` and Triton have compiled, kept for later replicas as manifests.

Compiled code fits one set of models, one environment and one kind of GPU; all of these are its key,
and so is the organization: what a replica writes, no other organization's replica loads. A replica
keeps writing to its cache, so it is given a copy of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from blake3 import blake3

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import pack_tree
from hotplate.machine.foreign_folder import ForeignFolder, aside, aside_for_long
from hotplate.serving.replica.node_agent import TreeSource

MOST_BYTES = 1 << 30
MOST_FILES = 20_000
"""Limits for one replica: far more than a large model's kernels, and too little to fill the
store."""
PUBLISH_S = 300.0
"""How long the copy may take."""
TAKE_S = 10.0
"""How long a start waits for the cache; to compile again takes longer."""
KEYS_KEPT = 20
"""How many keys of this node are kept; older ones at an origin of its own are removed."""
_KIND = "compiled"

log = logging.getLogger("hotplate.compiled")


def variables(folder: Path) -> dict[str, str]:
    """The environment variables that make a process keep its compiled code below `folder`."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


@dataclass(frozen=True)
class _Given:
    """A replica's folder: whose it is, its key, and the files in it when it was looked at last."""

    owner: str
    key: str
    names: frozenset[str]


def key(owner: str, models: Iterable[str], environment: str, gpu: str) -> str:
    """The key of compiled code: whose it is, the manifests of its models, the digest of the
    environment with all versions, the GPU's name, and the machine's architecture and C library."""
    machine = [platform.machine(), *platform.libc_ver()]
    parts = [owner, sorted(models), environment, gpu, machine]
    return blake3(json.dumps(parts).encode()).hexdigest()


class CompileCache:
    """The compiled code in one blob store, and which of it this node has used."""

    def __init__(self, root: Path, blobs: BlobStore, agent: TreeSource, gpu: str = "") -> None:
        """`root` is a folder of our own; `gpu` names this node's GPUs."""
        self.gpu = gpu
        self._used = root / "used"
        self._drafts = root / "drafts"
        shutil.rmtree(self._drafts, ignore_errors=True)  # of a process that was killed
        self._blobs = blobs
        self._agent = agent
        self._given: dict[Path, _Given] = {}

    async def take(self, owner: str, key: str, folder: Path) -> None:
        """Fill a replica's cache with what was published; it stays empty if there is nothing."""
        await asyncio.to_thread(folder.mkdir)
        try:
            async with asyncio.timeout(TAKE_S):
                note = await asyncio.to_thread(self._blobs.get_note, f"{_KIND}/{key}")
                if note is not None:
                    tree = await self._agent.tree(str(note["manifest"]), wait="view")
                    await asyncio.to_thread(_copy, Path(tree.root), folder)
                    await asyncio.to_thread(self._use, owner, key, str(note["manifest"]))
        except (CacheError, OSError, KeyError) as error:  # TimeoutError is an OSError
            log.warning("compiled code %s is not used: %r", key, error)
        self._given[folder] = _Given(owner, key, await aside(_names, folder))

    async def keep(self, folder: Path, *, ended: bool) -> None:
        """Publish a replica's cache if it has new files, in place of what was published. A folder
        that was not filled here is left alone."""
        if folder not in self._given:
            return
        given = self._given.pop(folder) if ended else self._given[folder]
        try:
            names = await aside(_names, folder)
            if not names <= given.names:
                await aside_for_long(self._publish, given, folder)
                if not ended:
                    self._given[folder] = replace(given, names=names)
        except (CacheError, OSError, ValueError) as error:
            log.warning("compiled code of %s is not published: %s", folder, error)

    def manifests(self) -> set[str]:
        """The manifests that this node has last used or published."""
        return {_manifest_of(path) for path in self._used.glob("*")}

    def notes(self) -> set[str]:
        """The names of the notes that this node has last used or published."""
        return {f"{_KIND}/{path.name}" for path in self._used.glob("*")}

    def forget(self, owners: Set[str]) -> None:
        """Have nothing kept here that others than these have used."""
        for path in list(self._used.glob("*")):
            with suppress(FileNotFoundError):
                _, _, owner = path.read_text(encoding="utf-8").partition("\n")
                if owner and owner not in owners:
                    path.unlink()

    def _publish(self, given: _Given, folder: Path) -> None:
        self._drafts.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._drafts) as draft, self._blobs.hold() as hold:
            with ForeignFolder.open(folder, PUBLISH_S) as theirs:
                for name, fd in theirs.files(MOST_FILES, MOST_BYTES):
                    _copy_out(fd, Path(draft, name))
            manifest = pack_tree(Path(draft), self._blobs, hold.renew)
            note = {"manifest": manifest.digest, "organization": given.owner}
            self._blobs.put_note(f"{_KIND}/{given.key}", note)
        self._use(given.owner, given.key, manifest.digest)
        log.info("compiled code %s is published: %d bytes", given.key, manifest.size_bytes)

    def _use(self, owner: str, key: str, manifest: str) -> None:
        self._used.mkdir(parents=True, exist_ok=True)
        (self._used / key).write_text(f"{manifest}\n{owner}", encoding="utf-8")
        used = sorted(self._used.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in used[:-KEYS_KEPT]:
            path.unlink(missing_ok=True)


def _manifest_of(used: Path) -> str:
    """Older versions have written no owner beside it."""
    return used.read_text(encoding="utf-8").partition("\n")[0]


def _names(folder: Path) -> frozenset[str]:
    """The files in the folder. Its replica may be running, and may be hostile."""
    with ForeignFolder.open(folder) as theirs:
        return frozenset(name for name, _ in theirs.files(MOST_FILES, MOST_BYTES))


def _copy_out(fd: int, target: Path) -> None:
    """Copies no more than the file's size when it was counted, because it may grow."""
    left = os.fstat(fd).st_size
    if left > MOST_BYTES:
        raise ValueError(f"{target.name} has more than {MOST_BYTES >> 30} GiB")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as copy:
        while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            copy.write(piece)
            left -= len(piece)


def _copy(source: Path, target: Path) -> None:
    """Copies files; each gets its name only when it is whole, because the caller may have given
    up."""
    for folder, _, names in os.walk(source):
        into = target / os.path.relpath(folder, source)
        into.mkdir(exist_ok=True)
        for name in names:
            draft = into / f".{name}.draft"
            shutil.copyfile(Path(folder, name), draft)
            draft.replace(into / name)
