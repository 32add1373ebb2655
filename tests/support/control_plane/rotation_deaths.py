"""The keys of two secrets are rotated: no value is lost, wherever that is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hotplate.platform.processes import key_file
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.spec.secret_content import (
    SecretContent,
    SecretItem,
    SecretStage,
    SecretType,
)
from hotplate.platform.store import keyring, org_secrets
from hotplate.platform.store.database import Database
from hotplate.platform.store.org_secrets import encrypt_anew
from hotplate.platform.store.parts import Store
from tests.support.control_plane.killed_lines import KilledWork

NAMES = ("one", "two")


def opened(folder: Path) -> Store:
    """As a control plane opens it at its start."""
    keys = KeyFile(folder / "secret-keys")
    store = Store(Database(f"sqlite:///{folder}/hotplate.db"), keys=keys)
    keys.begin(store.secrets.encrypted())
    store.secrets.check_keys()
    return store


def made(folder: Path) -> None:
    store = opened(folder)
    ada = store.identities.ensure_user("acme", "ada", "ada@example.com")
    for name in NAMES:
        items = (SecretItem(f"{name}_key", size_bytes=5, value=f"value of {name}"),)
        content = SecretContent(SecretType.ENV, SecretStage.RUNTIME, items)
        store.secrets.create(ada, name, "", content)
    store.close()


def rotate(store: Store) -> None:
    store.secrets.add_key()
    asyncio.run(encrypt_anew(store.secrets))


def check(folder: Path) -> None:
    """Every value is read, and the next start goes on to the end."""
    store = opened(folder)
    values = [each.value for each in store.secrets.values("acme", NAMES)]
    assert values == [f"value of {name}" for name in NAMES], values
    asyncio.run(encrypt_anew(store.secrets))
    uses = [(use.encrypts, use.values) for use in store.secrets.key_uses()]
    assert uses == [(True, len(NAMES))], uses
    rotate(store)
    assert [each.value for each in store.secrets.values("acme", NAMES)] == values
    store.close()


ROTATE = KilledWork(
    "rotate the keys",
    frozenset(filter(None, (each.__file__ for each in (key_file, keyring, org_secrets)))),
    made,
    lambda folder: rotate(opened(folder)),
    check,
)
