"""Makes a backup of an installation, which may run meanwhile.

The rows are of one moment: they are read in one transaction. The files that they name are copied
afterwards; nothing is swept from the blob store meanwhile (`cache/store/holds.py`).
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from blake3 import blake3
from sqlalchemy import Connection, Table, select

from hotplate.cache.errors import CacheError, UnknownPart
from hotplate.cache.manifest import Blob
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.holds import Hold
from hotplate.platform.api.internal.task_contents import folder_of
from hotplate.platform.backups import passphrase, rows
from hotplate.platform.backups.archive import ArchiveWriter, pieces_of, writing
from hotplate.platform.backups.kept_keys import KeptKeys
from hotplate.platform.backups.manifest import (
    KEYS_NAME,
    LEFT_OUT,
    NAME,
    BackedTable,
    BackupManifest,
)
from hotplate.platform.errors import BackupFailed
from hotplate.platform.store import schema
from hotplate.platform.store.database import opening, snapshot
from hotplate.platform.store.keyring import Keyring, SecretKey, written

NAMES_TREES = (("artifacts", "files"), ("revisions", "files"), ("deployments", "tree"))
"""Tables, and their columns with digests of manifests; an older schema lacks some."""


@dataclass(frozen=True)
class Installation:
    """What is backed up, or restored into."""

    database_url: str
    blobs: BlobStore
    keys: KeptKeys


@dataclass
class _Snapshot:
    """The rows of one moment, in files that have no name, and what they name."""

    revision: str
    tables: dict[str, BackedTable] = field(default_factory=dict)
    files: dict[str, IO[bytes]] = field(default_factory=dict)
    last_ids: dict[str, int] = field(default_factory=dict)
    trees: list[str] = field(default_factory=list)
    """Digests of the manifests that versions and code spaces name."""
    parts: list[tuple[str, int]] = field(default_factory=list)
    """What of tasks is too large for a row."""


def save(
    path: Path,
    installation: Installation,
    secret: bytes | None = None,
    *,
    with_blobs: bool = True,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> BackupManifest:
    """Writes a backup to a file, and says what is in it; with `secret`, a passphrase, the keys of
    secrets too. Raises BackupFailed and StoreFailed."""
    try:
        with ExitStack() as stack, writing(path) as archive:
            hold = stack.enter_context(Hold(installation.blobs.holds, now)) if with_blobs else None
            before = () if secret is None else installation.keys.kept()
            found = _read(installation.database_url, path.parent, stack)
            keys = None if secret is None else _sealed_keys(before, installation.keys, secret)
            blobs = _blobs(installation.blobs, found.trees) if with_blobs else {}
            manifest = BackupManifest(
                revision=found.revision,
                created_at=now().isoformat(),
                tables=found.tables,
                last_ids=found.last_ids,
                blobs=len(blobs) if with_blobs else None,
                blob_bytes=sum(blob.size_bytes for blob in blobs.values()),
                secret_keys=keys is not None,
            )
            _add(archive, NAME, manifest.to_bytes())
            if keys is not None:
                _add(archive, KEYS_NAME, keys)
            for number, (name, file) in enumerate(found.files.items()):
                size_bytes = file.seek(0, 2)
                file.seek(0)
                archive.add(f"tables/{number:03}-{name}.jsonl.gz", size_bytes, pieces_of(file))
            if hold is not None:
                _add_files(archive, installation.blobs, hold, blobs, found)
            return manifest
    except CacheError as error:
        raise BackupFailed(
            f"the files of {installation.blobs.url} cannot be backed up: {error}; --without-blobs "
            "leaves them out"
        ) from error


def _read(url: str, folder: Path, stack: ExitStack) -> _Snapshot:
    with opening(url) as engine:
        stack.callback(engine.dispose)
        if not schema.is_there(engine):
            raise BackupFailed(f"there is no database {engine.url.render_as_string()} yet")
        with snapshot(engine) as connection:
            found = _Snapshot(schema.read(connection).revision)
            tables = [one for one in rows.tables(connection) if one.name not in LEFT_OUT]
            for table in tables:
                file = stack.enter_context(_file_in(folder))
                found.tables[table.name] = _write(connection, table, file)
                found.files[table.name] = file
            found.last_ids = rows.last_ids(connection, tables)
            named = {table.name: table for table in tables}
            found.trees = sorted(_trees(connection, named))
            if "tasks" in named:
                found.parts = list(_parts(connection, named["tasks"]))
    return found


def _file_in(folder: Path) -> IO[bytes]:
    """One that has no name, and so is gone with the process."""
    return tempfile.TemporaryFile(dir=folder)


def _write(connection: Connection, table: Table, file: IO[bytes]) -> BackedTable:
    digest, count = blake3(), -1  # the first line is no row
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        for line in rows.lines(connection, table):
            digest.update(line)
            packed.write(line)
            count += 1
    return BackedTable(count, digest.hexdigest())


def _trees(connection: Connection, tables: Mapping[str, Table]) -> set[str]:
    named = set[str]()
    for table, column in NAMES_TREES:
        if column in tables[table].c:
            digest = tables[table].c[column]
            named.update(connection.scalars(select(digest).where(digest != "").distinct()))
    return named


def _parts(connection: Connection, tasks: Table) -> Iterator[tuple[str, int]]:
    for kind in ("input", "answer"):
        part, body = tasks.c[f"{kind}_part"], tasks.c[f"{kind}_body"]
        query = select(tasks.c.id, part).where(body.is_(None), part > 0)
        for task, number in connection.execute(query):
            yield folder_of(task), number


def _blobs(store: BlobStore, trees: list[str]) -> dict[str, Blob]:
    return {blob.digest: blob for tree in trees for blob in store.get_manifest(tree).blobs()}


def _sealed_keys(before: tuple[SecretKey, ...], keys: KeptKeys, secret: bytes) -> bytes | None:
    """Those from before the rows were read too: a `hotplate key rotate` may have been meanwhile."""
    now = keys.kept()
    if not now:
        return None
    ring = Keyring((*(key for key in before if key not in now), *now))
    return passphrase.seal(written(ring).encode(), secret)


def _add(archive: ArchiveWriter, name: str, content: bytes) -> None:
    archive.add(name, len(content), [content])


def _add_files(
    archive: ArchiveWriter, store: BlobStore, hold: Hold, blobs: dict[str, Blob], found: _Snapshot
) -> None:
    for digest, blob in blobs.items():
        archive.add(f"blobs/{digest}", blob.size_bytes, hold.during(store.chunks(blob)))
    for folder, number in found.parts:
        try:
            size_bytes, _ = store.parts(folder)[number]
            pieces = hold.during(store.read_parts(folder, [number]))
            archive.add(f"parts/{folder}/{number}", size_bytes, pieces)
        except (KeyError, UnknownPart):  # the task has ended for good since then
            continue
    for tree in found.trees:
        hold.renew()
        _add(archive, f"manifests/{tree}", store.get_manifest(tree).to_bytes())
