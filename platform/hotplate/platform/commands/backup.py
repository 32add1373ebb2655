"""`hotplate backup`: everything that must not be lost, in one file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.filesize import decimal

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.backups.kept_keys import KeysInDatabase, KeysInFile
from hotplate.platform.backups.manifest import BackupManifest
from hotplate.platform.backups.saving import Installation, save
from hotplate.platform.commands import flags, token_folder
from hotplate.platform.errors import BadSetting
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.key_file import SECRET_KEYS, KeyFile


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the backup; one that is there is replaced")
    parser.add_argument(
        "--without-blobs",
        action="store_true",
        help="leave out the files of bentos and models: they stay at `blobs_url`",
    )
    add_backup_flags(parser)


def add_backup_flags(parser: argparse.ArgumentParser) -> None:
    """Those that `restore` has too."""
    parser.add_argument(
        "--passphrase-file",
        metavar="F",
        help="file with the passphrase with which the keys of secrets go along",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    flags.add_data(parser)
    token_folder.add_tokens(parser)


def run(arguments: argparse.Namespace) -> None:
    """Back up, while the platform runs or not. Raises BadSetting, `BackupFailed`, `StoreFailed`."""
    secret = passphrase_of(arguments)
    path = Path(arguments.file).absolute()
    installation = installation_at(DataDir.named(arguments.data), arguments)
    made = save(path, installation, secret, with_blobs=not arguments.without_blobs)
    if arguments.json:
        print(json.dumps({"file": str(path), **made.as_json()}))
        return
    print(f"{path} has {contents_of(made)}, of schema {made.revision}")
    if note := keys_note(made):
        print(note)


def installation_at(data: DataDir, arguments: argparse.Namespace) -> Installation:
    """What a data directory, the settings and the environment name. Raises BadSetting."""
    settings = flags.platform_settings(flags.settings_file(data, arguments.settings))
    database_url = settings.database_url or data.database_url
    tokens = token_folder.tokens_of(arguments.tokens)
    file = settings.secret_keys_at
    in_file = file is not None or not tokens
    return Installation(
        database_url,
        BlobStore(settings.blobs_url or data.blobs_url, settings.disk_reserve_bytes),
        KeysInFile(KeyFile(file or data.root / SECRET_KEYS))
        if in_file
        else KeysInDatabase(database_url, tokens[token_folder.CLUSTER]),
    )


def passphrase_of(arguments: argparse.Namespace) -> bytes | None:
    """The file's first line; None = no file is named. Raises BadSetting."""
    name = arguments.passphrase_file
    if name is None:
        return None
    try:
        lines = Path(name).read_bytes().splitlines()
    except OSError as error:
        raise BadSetting(f"--passphrase-file {name} cannot be read: {error.strerror}") from error
    if not lines or not lines[0]:
        raise BadSetting(f"--passphrase-file {name} is empty: write the passphrase as a line")
    return lines[0]


def contents_of(manifest: BackupManifest) -> str:
    """What is in a backup, in words."""
    rows = sum(table.rows for table in manifest.tables.values())
    if manifest.blobs is None:
        return f"{rows} rows, and no files of bentos and models"
    return f"{rows} rows and {manifest.blobs} files ({decimal(manifest.blob_bytes)})"


def keys_note(manifest: BackupManifest) -> str:
    """A sentence for a backup whose secrets nobody could read; empty where there are none."""
    encrypted = manifest.tables.get("secret_values")
    if manifest.secret_keys or encrypted is None or not encrypted.rows:
        return ""
    return (
        f"its {encrypted.rows} values of secrets stay unreadable without the keys: keep "
        f"{SECRET_KEYS} elsewhere, or have it go along with --passphrase-file"
    )
