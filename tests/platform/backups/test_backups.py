"""Backups of every table and file, from either database into either."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.holds import HOLD
from hotplate.platform.backups.kept_keys import KeysInDatabase, KeysInFile
from hotplate.platform.backups.restoring import restore
from hotplate.platform.backups.saving import Installation, save
from hotplate.platform.cli import main
from hotplate.platform.errors import BackupFailed, SecretsUnreadable
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.store import schema
from hotplate.platform.store.database import opening
from hotplate.platform.store.keyring import Keyring
from tests.support.control_plane import any_rows, postgresql
from tests.support.control_plane.filled_installation import (
    files_of,
    filled,
    in_folder,
    installation,
    is_empty,
    key_file,
    rows_of,
    transaction,
)

SECRET = b"correct horse"
NewUrl = Callable[[str], str]


@pytest.fixture
def new_url(tmp_path: Path, request: pytest.FixtureRequest) -> NewUrl:
    """The URL of an empty database of a kind."""
    numbers = iter(range(100))

    def url(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return postgresql.database(request.getfixturevalue("postgresql_server"))

    return url


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation that has something of everything."""
    folder = tmp_path_factory.mktemp("installations") / "first"
    filled(installation(folder))
    return folder


@pytest.fixture
def first(tmp_path: Path, filled_once: Path) -> Installation:
    """A copy of it."""
    return in_folder(shutil.copytree(filled_once, tmp_path / "first"))


@pytest.fixture
def second(tmp_path: Path) -> Installation:
    return installation(tmp_path / "second")


def test_every_row_and_byte_comes_back_from_sqlite_by_postgresql(
    tmp_path: Path, first: Installation, new_url: NewUrl
) -> None:
    rows, files = rows_of(first), files_of(first)
    assert all(len(found) == any_rows.ROWS for found in rows.values())
    source = first
    for number, kind in enumerate(("postgresql", "sqlite", "sqlite", "postgresql", "postgresql")):
        file = tmp_path / f"{number}.tar"
        save(file, source, SECRET)
        target = installation(tmp_path / f"to-{number}", new_url(kind))
        restore(file, target, SECRET)
        assert rows_of(target) == rows
        assert files_of(target) == files
        assert target.keys.kept() == first.keys.kept() != ()
        source = target


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_ids_that_were_given_are_not_given_again(
    tmp_path: Path, new_url: NewUrl, kind: str, target: str
) -> None:
    there = installation(tmp_path / "there", new_url(kind))
    insert = (
        "INSERT INTO organizations (uid, name, created_at) "
        "VALUES ('{0}', '{0}', '2026-01-02 03:04:05') RETURNING id"
    )
    with transaction(there.database_url) as connection:
        for one in "abc":
            last = connection.scalar(text(insert.format(one)))
    assert last == 3
    save(tmp_path / "file", there)
    restored = installation(tmp_path / "restored", new_url(target))
    restore(tmp_path / "file", restored)
    with transaction(restored.database_url) as connection:
        assert connection.scalar(text(insert.format("d"))) == 4


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_of_an_earlier_schema_is_brought_up(
    tmp_path: Path, first: Installation, new_url: NewUrl, kind: str
) -> None:
    with opening(first.database_url) as engine:
        schema.migrate(engine, "0009")
    engine.dispose()
    assert save(tmp_path / "file", first).revision == "0009"
    target = installation(tmp_path / "target", new_url(kind))
    restore(tmp_path / "file", target)
    assert rows_of(target) == rows_of(first)


def test_the_platform_writes_while_it_is_backed_up(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    before = rows_of(first)
    with transaction(first.database_url) as connection:  # SQLite has one writer at a time
        connection.execute(text("DELETE FROM events"))
        save(tmp_path / "file", first)
    restore(tmp_path / "file", second)
    assert rows_of(second) == before


def test_nothing_is_swept_while_it_is_copied(tmp_path: Path, first: Installation) -> None:
    held = []

    def now() -> datetime:
        held.append(first.blobs.holds.held(written_now(first.blobs)))
        return datetime(2026, 1, 2, tzinfo=UTC)

    save(tmp_path / "file", first, now=now)
    assert held[0] is False
    assert held[1:] and all(held[1:])
    at = written_now(first.blobs)
    assert not first.blobs.holds.held(at)
    first.blobs.holds.keep("of a backup that was killed", datetime(2026, 1, 2, tzinfo=UTC))
    assert first.blobs.holds.held(at)
    assert not first.blobs.holds.held(at + HOLD.total_seconds() + 60), "it is over by itself"


def written_now(blobs: BlobStore) -> float:
    """The time by the store's clock."""
    return blobs.contents.put_claim({})


def test_without_blobs_there_are_rows_only(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    assert save(tmp_path / "file", first, with_blobs=False).blobs is None
    restore(tmp_path / "file", second)
    assert (rows_of(second), files_of(second)) == (rows_of(first), {})


def test_without_a_passphrase_the_keys_stay(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    save(tmp_path / "without", first)
    save(tmp_path / "with", first, SECRET)
    keys = key_file(first).path.read_bytes()
    assert keys not in (tmp_path / "with").read_bytes()
    with tarfile.open(tmp_path / "without") as without, tarfile.open(tmp_path / "with") as sealed:
        assert set(sealed.getnames()) - set(without.getnames()) == {"secret-keys.sealed"}
    restore(tmp_path / "with", second)
    assert not key_file(second).path.exists()


def test_a_restore_over_data_changes_nothing(tmp_path: Path, first: Installation) -> None:
    save(tmp_path / "file", first)
    before = rows_of(first), files_of(first)
    with pytest.raises(BackupFailed, match=r"the database is not empty .*nothing was changed"):
        restore(tmp_path / "file", first)
    assert (rows_of(first), files_of(first)) == before


class RotatedMeanwhile(KeyFile):
    """Others make a new key, and drop the old one, as soon as it was read."""

    def keyring(self) -> Keyring:
        found = super().keyring()
        self.keep(Keyring.new())
        return found


def test_keys_that_are_changed_while_rows_are_read_go_along(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    old = key_file(first).keyring().encrypts
    save(
        tmp_path / "file",
        replace(first, keys=KeysInFile(RotatedMeanwhile(key_file(first).path))),
        SECRET,
    )
    restore(tmp_path / "file", second, SECRET)
    keys = key_file(second).keyring().keys
    assert (len(keys), keys[0]) == (2, old)


@pytest.mark.parametrize("secret", [b"wrong", b""])
def test_the_wrong_passphrase_changes_nothing(
    tmp_path: Path, first: Installation, second: Installation, secret: bytes
) -> None:
    save(tmp_path / "file", first, SECRET)
    with pytest.raises(BackupFailed, match=r"passphrase is not the one .*nothing was changed"):
        restore(tmp_path / "file", second, secret)
    assert is_empty(second)
    assert files_of(second) == {}


def test_keys_of_a_cluster_go_along_and_are_sealed_with_the_other_ones_token(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    """From one machine to a cluster, to another one with another token, and back to a machine."""
    kept, file = first.keys.kept(), tmp_path / "file"
    for token in ("one", "another"):
        save(file, first, SECRET)
        folder = tmp_path / token
        url = f"sqlite:///{folder}/hotplate.db"
        there = replace(installation(folder, url), keys=KeysInDatabase(url, token))
        restore(file, there, SECRET)
        assert there.keys.kept() == kept
        with pytest.raises(SecretsUnreadable, match="another cluster-token"):
            replace(there, keys=KeysInDatabase(url, "wrong")).keys.kept()
        first = there
    save(file, first, SECRET)
    restore(file, second, SECRET)
    assert second.keys.kept() == kept


def test_settings_and_tokens_of_a_cluster_are_those_that_are_named(
    tmp_path: Path, first: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, tokens, file = tmp_path / "settings.toml", tmp_path / "tokens", tmp_path / "file"
    tokens.mkdir()
    for name in ("admin-token", "cluster-token"):
        (tokens / name).write_text(f"{name}-of-it")
    restored = f"sqlite:///{tmp_path}/restored.db"
    (tmp_path / "phrase").write_bytes(SECRET)
    own = ["--tokens", str(tokens), "--passphrase-file", str(tmp_path / "phrase")]
    own += ["--settings", str(settings), "--data", str(tmp_path / "data")]
    save(file, first, SECRET)
    settings.write_text(
        f'[platform]\ndatabase_url = "{restored}"\nblobs_url = "file://{tmp_path}/new"\n'
    )
    assert main(["restore", str(file), *own]) == 0
    assert KeysInDatabase(restored, "cluster-token-of-it").kept() == first.keys.kept()
    assert files_of(Installation(restored, BlobStore(f"file://{tmp_path}/new"), first.keys))
    assert main(["backup", str(file), *own]) == 0
    assert main(["migrate", "--check", *own[4:]]) == 0
    assert "unreadable" not in capsys.readouterr().out


def test_a_settings_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["backup", "f"], ["restore", "f"], ["migrate"]):
        assert main([*command, "--settings", "/nowhere.toml", "--data", str(tmp_path)]) == 1
        assert capsys.readouterr().err.strip().endswith("--settings /nowhere.toml is no file")


def test_other_keys_are_not_replaced(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    save(tmp_path / "file", first, SECRET)
    key_file(second).keep(Keyring.new())
    kept = key_file(second).path.read_bytes()
    with pytest.raises(BackupFailed, match=r"has other keys of secrets .*nothing was changed"):
        restore(tmp_path / "file", second, SECRET)
    assert key_file(second).path.read_bytes() == kept


def test_a_cut_or_changed_file_is_refused_wherever_it_was_cut_or_changed(
    tmp_path: Path, first: Installation, second: Installation
) -> None:
    save(tmp_path / "file", first, SECRET)
    whole = (tmp_path / "file").read_bytes()
    size = len(whole)
    broken = [whole[: size * part // 20] for part in range(20)]
    broken += [whole[:-1], whole + b"\0", whole + whole, b"a\n", b""]
    for at in (*range(0, size, size // 30), size - 1, size - 70, size - 100):
        broken.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for content in broken:
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(BackupFailed, match=r"no whole backup .*nothing was changed"):
            restore(tmp_path / "broken", second, SECRET)
    assert is_empty(second)
    assert files_of(second) == {}


def test_a_damaged_blob_is_told_before_it_is_needed(tmp_path: Path, first: Installation) -> None:
    damaged = next(
        path
        for path in Path(first.blobs.url.removeprefix("file://")).glob("blobs/*/*")
        if path.stat().st_size > 1_000_000
    )
    damaged.write_bytes(bytes(damaged.stat().st_size))
    with pytest.raises(BackupFailed, match=r"corrupt.*--without-blobs leaves them out"):
        save(tmp_path / "file", first)
    assert [path.name for path in tmp_path.glob("file*")] == []


def test_the_commands_say_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: Installation
) -> None:
    old, new, file = str(tmp_path / "first"), str(tmp_path / "new"), str(tmp_path / "file")
    (tmp_path / "phrase").write_text("a phrase\n")
    phrase = ["--passphrase-file", str(tmp_path / "phrase")]
    assert main(["backup", file, "--data", old]) == 0
    said = capsys.readouterr().out
    assert f"{file} has " in said and "values of secrets stay unreadable without the keys" in said
    assert main(["backup", file, "--data", old, *phrase, "--json"]) == 0
    assert '"secret_keys": true' in capsys.readouterr().out
    assert main(["restore", file, "--data", new]) == 0
    said = capsys.readouterr().out
    assert "are restored" in said and "stay unreadable until their keys are in" in said
    assert main(["restore", file, "--data", new]) == 1
    assert "hotplate: the database is not empty" in capsys.readouterr().err
    assert main(["restore", file, "--data", f"{new}2", *phrase]) == 0
    assert "unreadable" not in capsys.readouterr().out
    assert main(["restore", f"{file}.no", "--data", f"{new}3"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "phrase").write_text("")
    assert main(["backup", file, "--data", old, *phrase]) == 1
    assert "is empty: write the passphrase" in capsys.readouterr().err
