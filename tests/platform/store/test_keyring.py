from __future__ import annotations

import json

import pytest

from hotplate.platform.errors import SecretsUnreadable
from hotplate.platform.store.keyring import Keyring, SecretKey, read, written

PLACE = ("0123", "hf", "TOKEN")


def test_what_is_sealed_opens_at_its_place_only() -> None:
    keyring = Keyring.new()
    key_id, sealed = keyring.seal("välue", PLACE)
    assert keyring.unseal(key_id, sealed, PLACE) == "välue"
    assert "välue".encode() not in sealed
    assert keyring.seal("välue", PLACE)[1] != sealed, "each has a nonce of its own"
    for other in (("0124", "hf", "TOKEN"), ("0123", "hg", "TOKEN"), ("0123", "hf", "TOKEN2")):
        with pytest.raises(SecretsUnreadable, match="its row was changed or moved"):
            keyring.unseal(key_id, sealed, other)
    for changed in (sealed[:-1], sealed[:5], b"", bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(SecretsUnreadable, match="'TOKEN' of secret 'hf' cannot be read"):
            keyring.unseal(key_id, changed, PLACE)


def test_older_keys_open_and_the_newest_seals() -> None:
    first = Keyring.new()
    key_id, sealed = first.seal("a", PLACE)
    both = Keyring((*first.keys, SecretKey.new()))
    assert both.unseal(key_id, sealed, PLACE) == "a"
    assert both.seal("a", PLACE)[0] == both.keys[1].id != key_id
    with pytest.raises(SecretsUnreadable, match=f"encrypted with the key {key_id}, which"):
        both.without([key_id]).unseal(key_id, sealed, PLACE)


def test_a_file_has_them_all_and_no_other_is_taken_for_one() -> None:
    keyring = Keyring((SecretKey.new(), SecretKey.new()))
    assert read(written(keyring)) == keyring
    about = json.loads(written(keyring))
    about["keys"][0]["key"] = about["keys"][1]["key"]
    for text, why in (
        (json.dumps(about), f"the key '{keyring.keys[0].id}' in it was changed"),
        (written(keyring)[:40], "no list of keys"),
        ("", "no list of keys"),
        ("[]", "no list of keys"),
        ('{"keys": []}', "there is no key in it"),
        ('{"keys": [{"id": "x", "made_at": "2026-01-01", "key": "AAAA"}]}', "changed or cut"),
    ):
        with pytest.raises(ValueError, match=why):
            read(text)


def test_no_key_shows_in_what_is_printed_of_it() -> None:
    keyring = Keyring.new()
    assert repr(keyring.keys[0].material) not in repr(keyring)
