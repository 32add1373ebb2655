"""The folder with the few `hotplate` files that a replica's own environment needs.

A bento's environment is the user's: it has no `hotplate`, and must not get one with our
dependencies. So our part reaches it on `PYTHONPATH`, as plain files that import the standard
library, safetensors, torch and what bentoml brings.
"""

from __future__ import annotations

import functools
import os
import shutil
import uuid
from collections.abc import Iterator
from compileall import compile_dir
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from py_compile import PycInvalidationMode

from blake3 import blake3

PAYLOAD = (
    "hotplate.serving.replica.inside",
    "hotplate.serving.weights",
    "hotplate.serving.streaming",
    "hotplate.cache.own_token",
    "hotplate.cache.reader",
    "hotplate.deploy.sandbox.launcher",
    "hotplate.machine.address",
)


def make_payload(root: Path) -> Path:
    """The folder to put on a replica's `PYTHONPATH`, made under `root` once per content."""
    name, contents = _payload()
    folder = root / name
    if not folder.exists():
        _write(folder, contents)
    return folder


@functools.cache
def _payload() -> tuple[str, dict[PurePosixPath, bytes]]:
    """Its name, which is its content's, and its files: read once, as every start asks for it, and
    they go with the modules that this process has imported."""
    sources = dict(sorted(source for part in PAYLOAD for source in _sources(part)))
    contents = {place: path.read_bytes() for place, path in sources.items()}
    digest = blake3()
    for place, content in contents.items():
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:32], contents


def _sources(part: str) -> Iterator[tuple[PurePosixPath, Path]]:
    """The place in the folder of each file of a module or package."""
    place = PurePosixPath(*part.split("."))
    spec = find_spec(part)
    if spec is None:
        raise ModuleNotFoundError(f"{part} is not installed; install hotplate again.", name=part)
    if spec.origin is not None:
        yield place.with_suffix(".py"), Path(spec.origin)
        return
    for folder in spec.submodule_search_locations or ():
        for file in Path(folder).rglob("*.py"):
            yield place / file.relative_to(folder), file


def _write(folder: Path, contents: dict[PurePosixPath, bytes]) -> None:
    """Write the folder beside its place and rename it, so that a reader sees all of it or
    nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    for place, content in contents.items():
        path = draft / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # Otherwise each start would compile them, since replicas may not write there.
    compile_dir(
        draft,
        quiet=2,
        stripdir=draft,
        prependdir=folder,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
    for path in draft.rglob("*.py*"):
        path.chmod(0o644)  # replicas read them as other users, whatever our umask says
    for parent in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
        parent.chmod(0o755)
    try:
        os.rename(draft, folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)  # another process was first, with the same content
        if not folder.exists():
            raise
