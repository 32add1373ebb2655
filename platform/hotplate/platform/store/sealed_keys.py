"""The keys of secrets, kept in the database where no disk outlives the control plane.

There they are encrypted with what the installation's token makes, which is no part of the database:
whoever has that alone reads no secret.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from hotplate.platform.errors import CannotStart, SecretsUnreadable
from hotplate.platform.store.keyring import Keyring, read, written
from hotplate.platform.store.learnt import LearntValues

if TYPE_CHECKING:
    from cryptography.fernet import Fernet  # it takes its time

KEY = "secret keys"
"""Under which the store has them."""


class SealedKeys:
    """Those of one installation, which one control plane uses at a time."""

    def __init__(self, values: LearntValues, token: str) -> None:
        self._values = values
        self._lock = threading.RLock()
        self._token = token
        self._seen: str | None = None
        self._keyring: Keyring | None = None

    def begin(self, encrypted: int) -> None:
        """At a start: make them where nothing is encrypted yet, also where another installation's
        are; `encrypted` values are. Raises CannotStart."""
        try:
            self.keyring()
        except SecretsUnreadable as error:
            if encrypted:
                raise CannotStart(str(error)) from error
            self.keep(Keyring.new())

    def keyring(self) -> Keyring:
        """The keys as they are now. Raises SecretsUnreadable."""
        kept = self._values.get(KEY)
        if kept is None:
            raise SecretsUnreadable(
                "the keys of secrets are missing in the database, and what is encrypted with them "
                "cannot be read; restore a backup that has them"
            )
        if self._keyring is None or kept != self._seen:
            self._keyring, self._seen = unsealed(str(kept), self._token), kept
        return self._keyring

    def keep(self, keyring: Keyring) -> None:
        """Keep these from now on. Raises StoreFailed."""
        self._values.put(KEY, sealed(keyring, self._token))

    @contextmanager
    def held(self, *, alone: bool = False) -> Iterator[None]:
        """Within the block nobody else replaces them."""
        with self._lock:
            yield


def sealed(keyring: Keyring, token: str) -> str:
    """As the database has them."""
    return _cipher(token).encrypt(written(keyring).encode()).decode()


def unsealed(kept: str, token: str) -> Keyring:
    """What `sealed` has made. Raises SecretsUnreadable where it was made with another token."""
    from cryptography.fernet import InvalidToken

    try:
        return read(_cipher(token).decrypt(kept.encode()).decode())
    except (InvalidToken, ValueError):
        raise SecretsUnreadable(
            "the keys of secrets in the database were encrypted with another cluster-token; put "
            "back the Secret that had it (tokens.existingSecret)"
        ) from None


def _cipher(token: str) -> Fernet:
    from cryptography.fernet import Fernet

    made = sha256(b"keys of secrets of hotplate " + token.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(made))
