"""The files of one environment: `<environments>/<owner>/<digest>/`.

    ready          which attempt has succeeded, and from which interpreter it was made; written last
    taken          the same of an environment that another node has built
    modules.json   the modules that its last replica had imported when it was ready
    build.log      the output of its last build
    <attempt>/     of one build alone: `venv/`, and while it runs what else the build needs

A build writes to the folder of its attempt, replicas read `venv`, and neither sees the rest: where
an environment is and what it runs on is never read from files that they have written.
"""

from __future__ import annotations

import json
import math
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from hotplate.machine import foreign_folder
from hotplate.serving.replica.inside.modules import BASICS

BUILD_LOG = "build.log"
VENV = "venv"
SHARED = ".shared"
"""In place of an organization's name if all of them share; no organization has this name."""
MOST_NAME = 200
"""Characters of the name of an organization whose folder has its name."""

_PLAIN = re.compile(rf"[A-Za-z0-9][\w.-]{{0,{MOST_NAME - 1}}}", re.ASCII)


@dataclass(frozen=True)
class ReadyEnvironment:
    """An environment that may be used."""

    root: Path
    interpreter: Path
    """The target of its `bin/python`, with links resolved; the platform chose it."""

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"


class EnvironmentFolder:
    """The files of one environment. Does file I/O."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / BUILD_LOG
        self.modules = path / "modules.json"

    def found(self) -> ReadyEnvironment | None:
        """The environment that was built here, else that of another node; None if neither can be
        used."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            ready = self._read("ready")
            found = ReadyEnvironment(
                self.path / ready["attempt"] / VENV, Path(ready["interpreter"])
            )
            if found.root.is_dir() and os.access(found.interpreter, os.X_OK):
                return found  # its interpreter may have been uninstalled
        with suppress(OSError, ValueError, KeyError, TypeError):
            taken = self._read("taken")
            found = ReadyEnvironment(Path(taken["root"]), Path(taken["interpreter"]))
            if found.root.is_dir() and os.access(found.interpreter, os.X_OK):
                return found  # its agent may be down, or not show it yet
        return None

    def manifest(self) -> str:
        """The manifest of files from another node; "" if there are none."""
        with suppress(OSError, ValueError, KeyError):
            return str(self._read("taken")["manifest"])
        return ""

    def empty(self) -> None:
        """Remove the remains of earlier builds, and begin a log. Raises OSError."""
        with suppress(OSError):  # there is none yet, or an abandoned build still writes
            foreign_folder.remove_tree(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def built(self) -> tuple[float | None, float | None]:
        """When the environment was ready (Unix seconds), and how long its build took (seconds);
        None for what is not known."""
        for name in ("ready", "taken"):
            with suppress(OSError, ValueError, TypeError):
                ready_at = (self.path / name).stat().st_mtime
                build_s = self._read(name).get("build_s")
                return ready_at, None if build_s is None else float(build_s)
        return None, None

    def note_ready(self, attempt: str, interpreter: Path, build_s: float | None = None) -> None:
        """Records that the environment is ready, and how long its build took."""
        self.note_modules(BASICS)
        took = {} if build_s is None else {"build_s": f"{build_s:.3f}"}
        self._write("ready", {"attempt": attempt, "interpreter": str(interpreter), **took})

    def note_taken(self, manifest: str, found: ReadyEnvironment) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.note_modules(BASICS)
        about = {"root": str(found.root), "interpreter": str(found.interpreter)}
        self._write("taken", {"manifest": manifest, **about})

    def note_modules(self, names: Iterable[str]) -> None:
        noted = list(names)
        with suppress(OSError, ValueError):
            if json.loads(self.modules.read_bytes()) == noted:  # as most starts find it
                return
        # Standbys read it, as other users, whatever our umask says.
        self._write(self.modules.name, noted, mode=0o644)

    def _read(self, name: str) -> dict[str, str]:
        content = json.loads((self.path / name).read_bytes())
        if not isinstance(content, dict):
            raise ValueError(name)
        return content

    def _write(self, name: str, content: Mapping[str, str] | list[str], mode: int = 0o600) -> None:
        draft = self.path / f"{name}.{uuid.uuid4().hex}"
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.chmod(mode)
        draft.replace(self.path / name)


def attempts(root: Path) -> list[Path]:
    """The folders of all builds that have begun below the folder of all environments."""
    return [path for path in root.glob("*/*/*") if path.is_dir() and not path.is_symlink()]


def oldest_at(owner: Path) -> float:
    """When the oldest of an organization's environments was made, Unix seconds; infinity where
    there is none."""
    times = [
        path.stat().st_mtime for name in ("ready", "taken") for path in owner.glob(f"*/{name}")
    ]
    return min(times, default=math.inf)


def organization_folder(organization: str) -> str:
    """The name of an organization's folder; no two organizations have the same."""
    if _PLAIN.fullmatch(organization):
        return organization
    return f".{blake3(organization.encode(errors='surrogatepass')).hexdigest(16)}"
