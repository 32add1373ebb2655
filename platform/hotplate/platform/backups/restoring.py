"""Makes an empty installation what a backup says.

All rows come in one transaction that ends last. Whatever is cut before leaves an empty database,
and at most files in the blob store that no row names, which the next try finds there.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from blake3 import blake3
from sqlalchemy import Connection, Table, func, select

from hotplate.cache.errors import CacheError
from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.backups import manifest as manifests
from hotplate.platform.backups import passphrase, rows
from hotplate.platform.backups.archive import ArchiveReader, pieces_of, reading
from hotplate.platform.backups.manifest import BackedTable, BackupManifest
from hotplate.platform.backups.saving import Installation
from hotplate.platform.errors import BackupFailed
from hotplate.platform.store import keyring, schema
from hotplate.platform.store.database import opening


def restore(path: Path, installation: Installation, secret: bytes | None = None) -> BackupManifest:
    """Restores a file into an empty database, and says what was in it; with `secret`, a passphrase,
    the keys of secrets too. Raises BackupFailed and StoreFailed, with the database as it was."""
    try:
        with reading(path) as archive, opening(installation.database_url) as engine:
            try:
                with schema.alone(engine) as connection:
                    return _restored(archive, connection, installation, secret)
            finally:
                engine.dispose()
    except CacheError as error:
        raise BackupFailed(
            f"the files of {path} cannot be restored to {installation.blobs.url}: {error}"
        ) from error


def _restored(
    archive: ArchiveReader, connection: Connection, into: Installation, secret: bytes | None
) -> BackupManifest:
    members = iter(archive)
    name, content = next(members, ("", None))
    if content is None or name != manifests.NAME:
        raise BackupFailed("the file is a backup of something else")
    manifest = manifests.read(content.read())
    keys = None
    tables = _empty_tables(connection, manifest.revision)
    last: dict[str, Table] = {}
    for name, content in members:
        kind, _, rest = name.partition("/")
        if name == manifests.KEYS_NAME and secret is not None:
            keys = keyring.read(passphrase.unseal(content.read(), secret).decode())
            into.keys.check(keys)
        elif kind == "tables":
            table = rest.partition("-")[2].removesuffix(".jsonl.gz")
            last[table] = tables[table]
            _fill(connection, tables[table], content, manifest.tables[table])
        elif kind in ("blobs", "parts", "manifests"):
            _put(into.blobs, kind, rest, content)
    if missing := manifest.tables.keys() - last.keys():
        raise BackupFailed(f"the backup has no table {min(missing)}")
    rows.go_on_from(connection, list(tables.values()), dict(manifest.last_ids))
    schema.move(connection, manifest.revision, schema.head())
    if keys is not None:
        into.keys.keep(keys, connection)
    return manifest


def _empty_tables(connection: Connection, revision: str) -> Mapping[str, Table]:
    """The tables of a revision, in a database that has no rows."""
    if revision not in schema.revisions():
        raise BackupFailed(
            f"the backup is of schema {revision}, and this hotplate knows none after "
            f"{schema.head()}; restore it with the hotplate that made it"
        )
    schema.lock(connection)
    before = schema.read(connection).revision
    for table in rows.tables(connection):
        if connection.scalar(select(func.count()).select_from(table)):
            raise BackupFailed(
                f"the database is not empty (it has {table.name}); nothing was changed: restore "
                "into a new data directory or an empty database"
            )
    schema.move(connection, before, revision)
    return {table.name: table for table in rows.tables(connection)}


def _fill(connection: Connection, table: Table, content: IO[bytes], said: BackedTable) -> None:
    digest = blake3()

    def lines(packed: Iterable[bytes]) -> Iterator[bytes]:
        for line in packed:
            digest.update(line)
            yield line

    with gzip.GzipFile(fileobj=content, mode="rb") as packed:
        count = rows.load(connection, table, lines(packed))
    if BackedTable(count, digest.hexdigest()) != said:
        raise BackupFailed(f"the rows of {table.name} are not what the backup says of them")


def _put(store: BlobStore, kind: str, name: str, content: IO[bytes]) -> None:
    if kind == "manifests":
        found = store.put_manifest(Manifest.from_bytes(content.read()))
    elif kind == "parts":
        folder, _, number = name.partition("/")
        with store.part_writer(folder, int(number)) as part:
            for piece in pieces_of(content):
                part.write(piece)
            part.commit()
        return
    else:
        with store.writer() as writer:
            for piece in pieces_of(content):
                writer.write(piece)
            found = writer.seal().digest
            if found == name:
                writer.commit()
    if found != name:
        raise BackupFailed(f"{kind}/{name} of the backup has another content than its name says")
