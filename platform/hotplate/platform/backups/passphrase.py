"""A text that only a passphrase opens: scrypt (RFC 7914) makes the key of AES-256-GCM."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from hotplate.platform.errors import BackupFailed

COST = 1 << 17
"""128 MiB and a fifth of a second for each guess, as OWASP asks for (with r = 8, p = 1)."""
SALT_BYTES = 16
NONCE_BYTES = 12
PLACE = b"hotplate backup: secret keys"
"""What is encrypted elsewhere with the same passphrase does not open here."""


def seal(content: bytes, passphrase: bytes) -> bytes:
    """JSON with all that is needed to open it but the passphrase."""
    salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
    sealed = AESGCM(_key(passphrase, salt)).encrypt(nonce, content, PLACE)
    parts = {"salt": salt, "nonce": nonce, "sealed": sealed}
    return json.dumps({name: b64encode(part).decode() for name, part in parts.items()}).encode()


def unseal(content: bytes, passphrase: bytes) -> bytes:
    """Raises BackupFailed for another passphrase."""
    parts = {name: b64decode(part) for name, part in json.loads(content).items()}
    try:
        key = _key(passphrase, parts["salt"])
        return AESGCM(key).decrypt(parts["nonce"], parts["sealed"], PLACE)
    except InvalidTag as error:
        raise BackupFailed(
            "the passphrase is not the one that the backup was made with; nothing was changed, so "
            "give the right one, or none to restore without the keys of secrets"
        ) from error


def _key(passphrase: bytes, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=COST, r=8, p=1).derive(passphrase)
