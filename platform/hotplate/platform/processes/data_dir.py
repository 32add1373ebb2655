"""The data directory: where an installation on one machine keeps everything."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from hotplate.platform.errors import AlreadyRunning
from hotplate.platform.processes.event_log import EventLog
from hotplate.platform.processes.privacy import make_files_private, make_private

DEFAULT = Path("~/hotplate")

_OWN = ("logs", "run", "gateway", "engine")
"""Folders with files of the platform's own."""
_ANOTHER = "choose another --data"


@dataclass(frozen=True)
class DataDir:
    """Paths and small files below one directory that only its owner may enter."""

    root: Path

    @staticmethod
    def at(path: str | Path, *, alone: bool = False) -> DataDir:
        """The directory at a path, its owner's only, made if it is not there; `alone`: no other
        user is on this machine, as in a pod.

        Raises `BadSetting`.
        """
        data = DataDir.named(path)
        make_private(data.root, _ANOTHER, alone=alone)
        return data

    @staticmethod
    def named(path: str | Path) -> DataDir:
        """The same, but nothing is made: for commands that only look."""
        return DataDir(Path(path).expanduser().resolve())

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def visible_folder(self, name: str) -> Path:
        """A folder with no hidden one above it: BentoML reads no file of a service below such.

        It is in the data directory, or among the system's temporary files where that is hidden.
        """
        if not any(part.startswith(".") for part in self.root.parts):
            return self.folder(name)
        known_as = blake3(str(self.root).encode()).hexdigest(length=8)
        path = Path(tempfile.gettempdir()) / f"hotplate-{os.getuid()}-{known_as}"
        for folder in (path, path / name):
            make_private(folder, "choose a --data that is not hidden")
        return path / name

    def make_private(self) -> None:
        """Take away what others may do with the platform's own files. Raises `BadSetting`."""
        for folder in (self.root, *(self.root / name for name in _OWN)):
            if folder.is_dir():
                make_files_private(folder, _ANOTHER)

    @property
    def settings_file(self) -> Path:
        return self.root / "hotplate.toml"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.root / 'hotplate.db'}"

    @property
    def blobs_url(self) -> str:
        return f"file://{self.folder('blobs')}"

    @property
    def admin_token_file(self) -> Path:
        """The operator's token; one that is written there before the start is taken over."""
        return self.root / "admin-token"

    @property
    def endpoint_token_file(self) -> Path:
        """The token that callers of protected deployments send."""
        return self.root / "endpoint-token"

    def log(self, role: str) -> Path:
        return self.folder("logs") / f"{role}.log"

    @property
    def events(self) -> EventLog:
        """The platform's own events."""
        return EventLog(self.root / "logs" / "events.jsonl")

    def secret(self, name: str, given: str = "") -> str:
        """The secret kept under this name: the given one, else the one kept, else a new one."""
        path = self.root / name
        kept = path.read_text().strip() if path.exists() else ""
        value = given or kept or secrets.token_hex(24)
        if value != kept:
            self._write(path, value + "\n")
        return value

    def note(self, name: str, value: Any) -> None:
        """Keep a small JSON document in `run/`."""
        self._write(self.folder("run") / f"{name}.json", json.dumps(value))

    def noted(self, name: str) -> Any:
        """The last note of this name; None if there is none that can be read."""
        try:
            return json.loads((self.root / "run" / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None

    def forget(self, name: str) -> None:
        """Drop the note of this name, if there is one."""
        (self.root / "run" / f"{name}.json").unlink(missing_ok=True)

    def lock(self) -> int:
        """Make this process the only `hotplate up` on the directory, while the result is open.

        Raises `AlreadyRunning`.
        """
        descriptor = os.open(self.root / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise AlreadyRunning(
                f"{self.root} is in use by another 'hotplate up'; stop it or choose another --data"
            ) from error
        return descriptor

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Replace a file at once, readable by its owner only."""
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
