"""A large environment on a node that has none of it, and a service that needs one package."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import pack_tree
from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.benchmarks.cache_stages.view import viewed
from loadtests.harness.bounds import at_most
from loadtests.harness.child_process import output_of

FILES, QUICK_FILES = 20_000, 2_000
LIMIT_S = 60.0
_SITE = "lib/python3/site-packages"


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    files = QUICK_FILES if quick else FILES
    root, store = folder / "environment", f"file://{folder}/store"
    await asyncio.to_thread(_build, root, files)
    manifest = await asyncio.to_thread(pack_tree, root, BlobStore(store))
    log = folder / "python.log"
    async with viewed(folder / "node", store) as client:
        began = perf_counter()
        seen = Path((await client.tree(manifest.digest, wait="view")).root, _SITE)
        await asyncio.to_thread(os.listdir, seen)
        appeared_s = perf_counter() - began
        program = f"import sys; sys.path.insert(0, {str(seen)!r}); import package_7.all"
        await output_of(sys.executable, "-c", program, log=log, timeout_s=LIMIT_S)
        origin_bytes = (await client.status())["origin_bytes"]
    name = f"environment of {files:,} files"
    part = origin_bytes / manifest.size_bytes
    return [
        row(f"{name} appears, s", {"ours": appeared_s}, at_most(1.5)),
        row(f"{name}, a slim service: x its bytes", {"ours": part}, at_most(0.2), 3),
    ]


def _build(root: Path, files: int) -> None:
    """Packages of 100 modules, 5 KB each on average, and one that imports them all."""
    for number in range(files // 100):
        package = root / _SITE / f"package_{number}"
        package.mkdir(parents=True)
        names = [f"module_{module}" for module in range(98)]
        for at, name in enumerate(names):
            (package / f"{name}.py").write_text(f"DATA = {os.urandom(50 * at).hex()!r}\n")
        (package / "__init__.py").touch()
        lines = (f"import package_{number}.{name}" for name in names)
        (package / "all.py").write_text("\n".join(lines))
