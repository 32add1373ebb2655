"""An installation with rows in every table, the files that they name, and keys of secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, text

from hotplate.cache.manifest import Manifest, ManifestEntry
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.internal.task_contents import folder_of
from hotplate.platform.backups.kept_keys import KeysInFile
from hotplate.platform.backups.manifest import LEFT_OUT
from hotplate.platform.backups.saving import Installation
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.store import schema
from hotplate.platform.store.database import opening
from hotplate.platform.store.keyring import Keyring
from tests.support.control_plane import any_rows
from tests.support.control_plane.any_rows import Rows

FILES = {"weights": bytes(range(256)) * 40_000, "empty": b"", "config": b"{}"}


def installation(folder: Path, url: str = "") -> Installation:
    """A new one; in a file of SQLite where no URL is given."""
    folder.mkdir()
    return in_folder(folder, url)


def in_folder(folder: Path, url: str = "") -> Installation:
    url = url or f"sqlite:///{folder}/hotplate.db"
    keys = KeysInFile(KeyFile(folder / "secret-keys"))
    return Installation(url, BlobStore(f"file://{folder}/blobs"), keys)


def key_file(there: Installation) -> KeyFile:
    """Of an installation that has one."""
    assert isinstance(there.keys, KeysInFile)
    return there.keys.file


def filled(there: Installation, files: Mapping[str, bytes] = FILES) -> Installation:
    """With rows in every table, the files that they name, and keys."""
    tree = tree_of(there.blobs, files)
    with there.blobs.part_writer(folder_of("t"), 1) as part:
        part.write(b"a large input")
        part.commit()
    key_file(there).keep(Keyring.new())
    with transaction(there.database_url) as connection:
        any_rows.add(connection)
        for statement in (
            f"UPDATE artifacts SET files = '{tree}'",
            f"UPDATE revisions SET files = '{tree}'",
            f"UPDATE deployments SET tree = '{tree}'",
            "UPDATE tasks SET input_body = NULL, id = 't' WHERE input_part = 1",
            "UPDATE learnt SET value = 'null' WHERE value IS NOT NULL",
        ):
            connection.execute(text(statement))
    return there


def tree_of(blobs: BlobStore, files: Mapping[str, bytes] = FILES) -> str:
    entries = []
    for path, content in files.items():
        with blobs.writer() as writer:
            writer.write(content)
            entries.append(ManifestEntry(path, blob=writer.commit()))
    return blobs.put_manifest(Manifest(tuple(entries)))


@contextmanager
def transaction(url: str) -> Iterator[Connection]:
    """In a database that has the code's schema."""
    with opening(url) as engine:
        schema.bring_up(engine)
        with engine.begin() as connection:
            yield connection
    engine.dispose()


def rows_of(there: Installation) -> Rows:
    with transaction(there.database_url) as connection:
        found = any_rows.read(connection)
    return {name: rows for name, rows in found.items() if name not in LEFT_OUT}


def files_of(there: Installation) -> dict[str, bytes]:
    """Everything in the blob store, by path."""
    root = Path(there.blobs.url.removeprefix("file://"))
    paths = (Path(folder, file) for folder, _, files in os.walk(root) for file in files)
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def is_empty(there: Installation) -> bool:
    return not any(rows_of(there).values()) and not there.keys.kept()
