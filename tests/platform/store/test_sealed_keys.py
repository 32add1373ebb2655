"""Keys of secrets that lie in the database, encrypted with what the cluster's token makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.platform.errors import CannotStart, SecretsUnreadable
from hotplate.platform.store.database import Database
from hotplate.platform.store.keyring import Keyring, SecretKey
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.sealed_keys import KEY, SealedKeys

OTHER_TOKEN = "were encrypted with another cluster-token; put back the Secret that had it"
MISSING = "the keys of secrets are missing in the database"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/hotplate.db")
    yield database
    database.close()


@pytest.fixture
def values(database: Database) -> LearntValues:
    return LearntValues(database)


def test_they_are_made_at_the_first_start_and_found_at_the_next(values: LearntValues) -> None:
    first, second = SealedKeys(values, "token"), SealedKeys(values, "token")
    first.begin(0)
    made = first.keyring()
    second.begin(7)
    assert second.keyring() == made
    second.begin(0)
    assert second.keyring() == made, "a start makes none anew"


def test_the_database_alone_does_not_have_them(values: LearntValues) -> None:
    keys = SealedKeys(values, "token")
    keys.begin(0)
    kept = str(values.get(KEY))
    (key,) = keys.keyring().keys
    assert key.id not in kept and "keys" not in kept


def test_those_of_another_token_are_refused_and_stay(values: LearntValues) -> None:
    SealedKeys(values, "token").begin(0)
    kept = values.get(KEY)
    other = SealedKeys(values, "another")
    with pytest.raises(CannotStart, match=OTHER_TOKEN):
        other.begin(3)
    with pytest.raises(SecretsUnreadable, match=OTHER_TOKEN):
        other.keyring()
    assert values.get(KEY) == kept


def test_where_nothing_is_encrypted_those_of_another_token_make_way(values: LearntValues) -> None:
    SealedKeys(values, "token").begin(0)
    other = SealedKeys(values, "another")
    other.begin(0)
    made = other.keyring()
    again = SealedKeys(values, "another")
    again.begin(1)
    assert again.keyring() == made


@pytest.mark.parametrize("kept", ["", "no token of Fernet's", "é", 7, {"a": 1}])
def test_what_is_none_is_refused(values: LearntValues, kept: object) -> None:
    values.put(KEY, kept)
    with pytest.raises(CannotStart, match=OTHER_TOKEN):
        SealedKeys(values, "token").begin(1)


def test_where_something_is_encrypted_missing_ones_are_not_made(values: LearntValues) -> None:
    keys = SealedKeys(values, "token")
    with pytest.raises(CannotStart, match=MISSING):
        keys.begin(3)
    assert values.get(KEY) is None
    keys.begin(0)
    values.forget(KEY)
    with pytest.raises(SecretsUnreadable, match=MISSING):
        keys.keyring()


def test_what_another_has_kept_is_read_and_what_was_undone_is_not(
    database: Database, values: LearntValues
) -> None:
    one, other = SealedKeys(values, "token"), SealedKeys(values, "token")
    one.begin(0)
    before = one.keyring()
    longer = Keyring((*before.keys, SecretKey.new()))
    with pytest.raises(ZeroDivisionError), database.together():
        one.keep(longer)
        assert one.keyring() == longer
        raise ZeroDivisionError
    assert one.keyring() == before
    other.keep(longer)
    assert one.keyring() == longer
