"""The modules that a replica had imported when it was ready: a standby imports them at its start.

Only those of the environment and of the interpreter count, not the bento's own and not ours. Python
>= 3.9, standard library only.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import uuid
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from importlib.machinery import all_suffixes
from itertools import takewhile
from typing import Any

FILE_NAME = "modules.json"
MOST_BYTES = 1 << 20
"""Limit of a replica's file in bytes."""
BASICS = (
    "bentoml",
    "_bentoml_sdk",
    "_bentoml_impl.loader",
    "_bentoml_impl.server.serving",
    "_bentoml_impl.worker.service",
)
"""Modules that every replica imports; all that is known before the first one was ready."""
_ENDINGS = tuple(all_suffixes())


class _Before:
    """What had been imported when this process was about to be forked."""

    names = b""
    """As JSON, without its end."""
    last = ""


def note_before_fork() -> None:
    """Has forks look at those modules only that they import themselves: to look at one writes to
    its pages, which are shared."""
    _Before.names = json.dumps(_imported(sys.modules)).encode()[:-1]
    _Before.last = next(reversed(sys.modules))


def note_modules(path: str) -> None:
    """Writes the names of the modules that this process has imported; silently fails."""
    new = list(takewhile(lambda name: name != _Before.last, reversed(sys.modules)))
    names = json.dumps(_imported(reversed(new))).encode()
    if _Before.names:
        names = _Before.names + (b", " if len(names) > 2 else b"") + names[1:]
    draft = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(draft, "wb") as file:
            file.write(names)
        os.replace(draft, path)
    except OSError:  # a full disk, or an environment that is being removed
        return


def noted_modules(path: str) -> list[str]:
    """The names that were last written there, in the order of import; else the basics."""
    try:
        with open(path, encoding="utf-8") as file:
            names = json.load(file)
    except (OSError, ValueError):
        return list(BASICS)
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def noted_in(content: bytes) -> Any:
    """The content of a replica's file, which a bento's code can write too. None if it is no
    JSON."""
    try:
        return json.loads(content[:MOST_BYTES])
    except (ValueError, RecursionError):
        return None


def import_all(names: list[str]) -> dict[str, BaseException]:
    """Imports the modules one after the other; returns those that fail, and why."""
    failed: dict[str, BaseException] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever a library does
            failed[name] = error
    return failed


def half_imported(failed: Mapping[str, BaseException]) -> str:
    """A sentence on modules whose own code has failed. What it did before that is there, and would
    be done a second time in a replica, where the import may succeed; "" if there are none."""
    ran = {name: error for name, error in failed.items() if not _is_missing(name, error)}
    whys = (f"{name} ({type(error).__name__}: {error})" for name, error in sorted(ran.items()))
    return f"replicas have imported what cannot be imported here: {', '.join(whys)}" if ran else ""


def _is_missing(name: str, error: BaseException) -> bool:
    """Whether there is no such module, so that nothing of it has run."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def shadowed(folders: Iterable[str], before: Container[str]) -> list[str]:
    """The imported modules that a process would import from one of these folders if they came
    first, but for those that are imported `before` that. A folder without `__init__` gives way to
    any other module."""
    own: set[str] = set()
    for folder in folders:
        with suppress(OSError):
            own.update(filter(None, map(_module_in, os.scandir(folder))))
    return sorted(name for name in own if name in sys.modules and name not in before)


def _module_in(entry: os.DirEntry[str]) -> str:
    """The module that a file or folder is; "" if it is none."""
    if entry.name.endswith(_ENDINGS):
        return entry.name.partition(".")[0]
    inits = (os.path.join(entry.path, f"__init__{ending}") for ending in _ENDINGS)
    return entry.name if any(map(os.path.exists, inits)) else ""


def _imported(names: Iterable[str]) -> list[str]:
    """Those of these modules that are the environment's or the interpreter's."""
    folders = tuple(
        os.path.join(sysconfig.get_path(name), "")
        for name in ("purelib", "platlib", "stdlib", "platstdlib")
    )
    return [
        name
        for name in list(names)
        if not name.startswith(("hotplate.", "__"))
        and name != "hotplate"
        and _origin(sys.modules.get(name)).startswith(folders)
    ]


def _origin(module: Any) -> str:
    """The file of a module; "" if it has none. Does not load lazy modules."""
    try:
        spec = object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:
        return ""
    origin = getattr(spec, "origin", None)
    return origin if isinstance(origin, str) and getattr(spec, "has_location", False) else ""
