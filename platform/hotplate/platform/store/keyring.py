"""The keys that secrets are encrypted with, and AES-256-GCM (NIST SP 800-38D) by them.

What is sealed is bound to its place: it opens nowhere else. A key's id is a digest of the key, so
that another key is never taken for it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol

from hotplate.platform.errors import SecretsUnreadable

KEY_BYTES = 32
NONCE_BYTES = 12
"""A random one for each value: of 2**32 under one key two are alike with p = 2**-33."""
_ID_BYTES = 8


@dataclass(frozen=True)
class SecretKey:
    made_at: datetime
    material: bytes = field(repr=False)

    @staticmethod
    def new() -> SecretKey:
        return SecretKey(datetime.now(UTC), os.urandom(KEY_BYTES))

    @property
    def id(self) -> str:
        """16 hexadecimal digits, which tell nothing of the key."""
        return sha256(b"id of a key of hotplate " + self.material).hexdigest()[: 2 * _ID_BYTES]


@dataclass(frozen=True)
class Keyring:
    """Keys, the oldest first; the last one encrypts."""

    keys: tuple[SecretKey, ...]

    @staticmethod
    def new() -> Keyring:
        return Keyring((SecretKey.new(),))

    @property
    def encrypts(self) -> SecretKey:
        return self.keys[-1]

    def seal(self, value: str, place: Sequence[str]) -> tuple[str, bytes]:
        """The id of the key, and the encrypted value. A place is an organization's uid, the name of
        a secret and the key in it."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # it takes its time

        nonce = os.urandom(NONCE_BYTES)
        sealed = AESGCM(self.encrypts.material).encrypt(nonce, value.encode(), _bound(place))
        return self.encrypts.id, nonce + sealed

    def unseal(self, key_id: str, sealed: bytes, place: Sequence[str]) -> str:
        """Raises SecretsUnreadable where there is no such key, or it was sealed elsewhere."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = next((key for key in self.keys if key.id == key_id), None)
        where = " of secret ".join(repr(part) for part in reversed(place[1:]))
        if key is None:
            raise SecretsUnreadable(
                f"the value of {where} cannot be read: it is encrypted with the key {key_id}, "
                "which is not among the keys of secrets; put those back that have it"
            )
        try:
            nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
            return AESGCM(key.material).decrypt(nonce, rest, _bound(place)).decode()
        except (InvalidTag, ValueError):
            raise SecretsUnreadable(
                f"the value of {where} cannot be read: its row was changed or moved in the "
                "database; set it again with 'bentoml secret apply'"
            ) from None

    def without(self, ids: Sequence[str]) -> Keyring:
        return Keyring(tuple(key for key in self.keys if key.id not in ids))


def _bound(place: Sequence[str]) -> bytes:
    return json.dumps(["hotplate secret", *place]).encode()


def written(keyring: Keyring) -> str:
    """As a file has it."""
    keys = [
        {
            "id": key.id,
            "made_at": key.made_at.isoformat(),
            "key": base64.b64encode(key.material).decode(),
        }
        for key in keyring.keys
    ]
    return json.dumps({"version": 1, "keys": keys}, indent=1) + "\n"


def read(text: str) -> Keyring:
    """What `written` has made. Raises ValueError with the reason."""
    try:
        about = json.loads(text)
        keys = tuple(map(_key, about["keys"]))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # Without the text: an error of JSON's repeats none of it, others might.
        why = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise ValueError(f"it is no list of keys as 'hotplate key' writes it ({why})") from None
    for key, kept in zip(keys, about["keys"], strict=True):
        if len(key.material) != KEY_BYTES or key.id != kept["id"]:
            raise ValueError(f"the key {kept['id']!r:.40} in it was changed or cut")
    if not keys:
        raise ValueError("there is no key in it")
    return Keyring(keys)


def _key(kept: Any) -> SecretKey:
    material = base64.b64decode(kept["key"], validate=True)
    return SecretKey(datetime.fromisoformat(kept["made_at"]), material)


class KeySource(Protocol):
    """Where the keys are kept. All of it blocks, and raises SecretsUnreadable."""

    def keyring(self) -> Keyring:
        """The keys as they are now."""

    def keep(self, keyring: Keyring) -> None:
        """Keep these from now on; when it returns, a crash does not lose them."""

    @contextmanager
    def held(self, *, alone: bool = False) -> Iterator[None]:
        """Within the block nobody else replaces them; with `alone`, nobody else holds them."""
        yield


class KeysInMemory:
    """For a store that nobody opens again."""

    def __init__(self) -> None:
        self._keyring = Keyring.new()

    def keyring(self) -> Keyring:
        return self._keyring

    def keep(self, keyring: Keyring) -> None:
        self._keyring = keyring

    @contextmanager
    def held(self, *, alone: bool = False) -> Iterator[None]:
        yield
