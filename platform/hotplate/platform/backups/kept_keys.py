"""Where an installation keeps the keys of secrets: in a file, or on a cluster in its database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from hotplate.platform.errors import BackupFailed
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.store import keyring as keyrings
from hotplate.platform.store import sealed_keys
from hotplate.platform.store.database import opening
from hotplate.platform.store.keyring import Keyring, SecretKey
from hotplate.platform.store.learnt import LearntRow


class KeysInFile:
    """One machine's."""

    def __init__(self, file: KeyFile) -> None:
        self.file = file
        self.place = str(file.path)

    def kept(self) -> tuple[SecretKey, ...]:
        """Those that there are. Raises SecretsUnreadable."""
        return self.file.keyring().keys if self.file.path.exists() else ()

    def check(self, restored: Keyring) -> None:
        """Raises BackupFailed where others are kept, which something may be encrypted with."""
        found = self.kept()
        if found and keyrings.written(Keyring(found)) != keyrings.written(restored):
            raise BackupFailed(
                f"{self.place} has other keys of secrets than the backup; nothing was changed: "
                "move it away, or restore without a passphrase"
            )

    def keep(self, restored: Keyring, _: Connection) -> None:
        """From now on."""
        with self.file.held(alone=True):
            self.file.keep(restored)


@dataclass(frozen=True)
class KeysInDatabase:
    """A cluster's: sealed with its token, beside all else that is restored."""

    database_url: str
    token: str
    place: str = "the database"

    def kept(self) -> tuple[SecretKey, ...]:
        """Those that there are. Raises SecretsUnreadable, StoreFailed."""
        query = select(LearntRow.value).where(LearntRow.key == sealed_keys.KEY)
        with opening(self.database_url) as engine:
            with engine.begin() as connection:
                sealed = connection.scalar(query)
            engine.dispose()
        return () if sealed is None else sealed_keys.unsealed(str(sealed), self.token).keys

    def check(self, restored: Keyring) -> None:
        """An empty database has none."""

    def keep(self, restored: Keyring, connection: Connection) -> None:
        """In place of those that came with the rows, which another token may have sealed."""
        connection.execute(delete(LearntRow).where(LearntRow.key == sealed_keys.KEY))
        sealed = sealed_keys.sealed(restored, self.token)
        connection.execute(insert(LearntRow).values(key=sealed_keys.KEY, value=sealed))


KeptKeys = KeysInFile | KeysInDatabase
