"""The file with the keys of secrets (`secret_keys_file`): read, made at the first start, replaced.

A key that something is encrypted with must not be lost: a file is replaced as a whole and is on
the disk before anybody uses what is new in it; whoever encrypts something holds a lock meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hotplate.platform.errors import CannotStart, SecretsUnreadable
from hotplate.platform.store.keyring import Keyring, read, written

SECRET_KEYS = "secret-keys"
"""Its name in a data directory."""


class KeyFile:
    """One file, which other control planes may have too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()
        self._keyring: Keyring | None = None

    def begin(self, encrypted: int) -> None:
        """At a start: read it, or make it where there is none and nothing is encrypted yet;
        `encrypted` values are. Raises CannotStart, and changes nothing then."""
        try:
            if not self.path.exists():
                self._make(encrypted)
            self.keyring()
        except SecretsUnreadable as error:
            raise CannotStart(str(error)) from error

    def _make(self, encrypted: int) -> None:
        with self.held(alone=True):
            if self.path.exists():  # another control plane has made it meanwhile
                return
            if encrypted:
                raise CannotStart(
                    f"secret_keys_file {self.path} is missing, and what is encrypted with its "
                    f"keys (secrets with {encrypted} values) is lost without it; put it back from "
                    "where you keep it"
                )
            self.keep(Keyring.new())

    def keyring(self) -> Keyring:
        """The keys as the file has them now."""
        try:
            about = self.path.stat()
            seen = (about.st_ino, about.st_mtime_ns, about.st_size)
            if self._keyring is None or seen != self._seen:
                if about.st_mode & 0o077:
                    raise SecretsUnreadable(
                        f"secret_keys_file {self.path} can be read by others (mode "
                        f"{stat.S_IMODE(about.st_mode):o}); 'chmod 600 {self.path}' makes it yours"
                    )
                self._keyring, self._seen = read(self.path.read_text()), seen
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise SecretsUnreadable(
                f"secret_keys_file {self.path} cannot be used ({why}); put it back from where you "
                "keep it, and let the platform's user read it"
            ) from error
        return self._keyring

    def keep(self, keyring: Keyring) -> None:
        """Keep these from now on. The old file or the new one is there, whenever we are killed."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w") as file:
                file.write(written(keyring))
                file.flush()
                os.fsync(file.fileno())
            self._fresh.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            with suppress(OSError):
                self._fresh.unlink(missing_ok=True)
            raise SecretsUnreadable(
                f"secret_keys_file {self.path} cannot be written ({error.strerror}); nothing was "
                "changed, so make room or allow it, and try again"
            ) from error

    @contextmanager
    def held(self, *, alone: bool = False) -> Iterator[None]:
        """Within the block nobody else replaces it; with `alone`, nobody else holds it."""
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if not alone:  # where this cannot be made, the keys cannot be replaced either
                yield
                return
            raise SecretsUnreadable(
                f"{lock} cannot be locked ({error.strerror}); let the platform's user write there"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    @property
    def _fresh(self) -> Path:
        return self.path.with_name(f".{self.path.name}.new")
