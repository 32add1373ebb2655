"""`hotplate restore`: an empty installation becomes what a backup says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hotplate.platform.backups.manifest import BackupManifest
from hotplate.platform.backups.restoring import restore
from hotplate.platform.commands.backup import (
    add_backup_flags,
    contents_of,
    installation_at,
    passphrase_of,
)
from hotplate.platform.processes.data_dir import DataDir


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `hotplate backup` has written")
    add_backup_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Restore into an empty database. Raises BadSetting, `BackupFailed`, `StoreFailed`."""
    secret = passphrase_of(arguments)
    path = Path(arguments.file).absolute()
    installation = installation_at(DataDir.at(arguments.data), arguments)
    found = restore(path, installation, secret)
    if arguments.json:
        print(json.dumps({"file": str(path), **found.as_json()}))
        return
    print(f"{contents_of(found)} of {found.created_at} are restored")
    if note := _note(found, with_keys=secret is not None, keys=installation.keys.place):
        print(note)


def _note(manifest: BackupManifest, *, with_keys: bool, keys: str) -> str:
    encrypted = manifest.tables.get("secret_values")
    if encrypted is None or not encrypted.rows or (with_keys and manifest.secret_keys):
        return ""
    how = "give --passphrase-file" if manifest.secret_keys else "put back the file that you kept"
    return (
        f"{encrypted.rows} values of secrets stay unreadable until their keys are in {keys}: {how}"
    )
