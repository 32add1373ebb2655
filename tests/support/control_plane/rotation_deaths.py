"""The keys of two secrets are rotated: no value is lost, wherever that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from hotplate.platform.processes import key_file
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.spec.secret_content import (
    SecretContent,
    SecretItem,
    SecretStage,
    SecretType,
)
from hotplate.platform.store import keyring, org_secrets, sealed_keys
from hotplate.platform.store.database import Database
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.org_secrets import encrypt_anew
from hotplate.platform.store.parts import Store
from hotplate.platform.store.sealed_keys import SealedKeys
from tests.support.control_plane.killed_lines import KilledWork

NAMES = ("one", "two")


Keys = Callable[[Path, Database], KeyFile | SealedKeys]


def in_a_file(folder: Path, database: Database) -> KeyFile:
    return KeyFile(folder / "secret-keys")


def in_the_database(folder: Path, database: Database) -> SealedKeys:
    return SealedKeys(LearntValues(database), "of the cluster")


def opened(folder: Path, keys_of: Keys) -> Store:
    """As a control plane opens it at its start."""
    database = Database(f"sqlite:///{folder}/hotplate.db")
    keys = keys_of(folder, database)
    store = Store(database, keys=keys)
    keys.begin(store.secrets.encrypted())
    store.secrets.check_keys()
    return store


def made(keys_of: Keys, folder: Path) -> None:
    store = opened(folder, keys_of)
    ada = store.identities.ensure_user("acme", "ada", "ada@example.com")
    for name in NAMES:
        items = (SecretItem(f"{name}_key", size_bytes=5, value=f"value of {name}"),)
        content = SecretContent(SecretType.ENV, SecretStage.RUNTIME, items)
        store.secrets.create(ada, name, "", content)
    store.close()


def rotate(store: Store) -> None:
    store.secrets.add_key()
    asyncio.run(encrypt_anew(store.secrets))


def check(keys_of: Keys, folder: Path) -> None:
    """Every value is read, and the next start goes on to the end."""
    store = opened(folder, keys_of)
    values = [each.value for each in store.secrets.values("acme", NAMES)]
    assert values == [f"value of {name}" for name in NAMES], values
    asyncio.run(encrypt_anew(store.secrets))
    uses = [(use.encrypts, use.values) for use in store.secrets.key_uses()]
    assert uses == [(True, len(NAMES))], uses
    rotate(store)
    assert [each.value for each in store.secrets.values("acme", NAMES)] == values
    store.close()


def _rotation(name: str, keys_of: Keys, of_keys: ModuleType) -> KilledWork:
    return KilledWork(
        name,
        frozenset(filter(None, (each.__file__ for each in (of_keys, keyring, org_secrets)))),
        partial(made, keys_of),
        lambda folder: rotate(opened(folder, keys_of)),
        partial(check, keys_of),
    )


ROTATE = _rotation("rotate the keys", in_a_file, key_file)
ROTATE_SEALED = _rotation("rotate sealed keys", in_the_database, sealed_keys)
