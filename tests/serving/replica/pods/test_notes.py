"""What notes say of environments of pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica.pods.notes import (
    EnvironmentNotes,
    about,
    digest_of,
    name_of,
    noted,
)

DIGEST = digest_of("acme", "spec", "runtime:1")
NOTE = {**about("acme", DIGEST, "runtime:1", "one"), "manifest": "ab" * 32}


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/store")


def test_owner_specification_and_image_make_another_environment() -> None:
    others = {
        digest_of("other", "spec", "runtime:1"),
        digest_of("acme", "other", "runtime:1"),
        digest_of("acme", "spec", "runtime:2"),
    }
    assert len({DIGEST, *others}) == 4
    assert len(DIGEST) == 32


def test_a_bento_that_uses_it_is_noted_once(blobs: BlobStore) -> None:
    blobs.put_note(name_of(DIGEST), NOTE)
    notes = EnvironmentNotes(blobs)
    found = notes.use(DIGEST, ["one", "two"])
    assert found is not None
    assert (found.digest, found.owner, found.image) == (DIGEST, "acme", "runtime:1")
    kept = blobs.get_note(name_of(DIGEST))
    assert kept is not None and kept["bentos"] == ["one", "two"]
    before = notes.all()
    notes.use(DIGEST, ["two"])
    assert notes.all() == before  # it was not written again


def test_how_its_build_went_stands_beside_it(blobs: BlobStore) -> None:
    blobs.put_note(name_of(DIGEST), NOTE)
    EnvironmentNotes(blobs).built(DIGEST, ["two"], {"build_s": 7.5})
    kept = blobs.get_note(name_of(DIGEST))
    assert kept == {**NOTE, "bentos": ["one", "two"], "build_s": 7.5}


def test_there_is_none_where_no_note_is(blobs: BlobStore) -> None:
    assert EnvironmentNotes(blobs).use(DIGEST, ["one"]) is None


@pytest.mark.parametrize("missing", ["digest", "manifest", "image", "organization", "bentos"])
def test_a_note_of_another_kind_is_none_of_pods(missing: str) -> None:
    """One of a node, for example, names its interpreter and no image."""
    assert noted(NOTE) is not None
    assert noted({name: value for name, value in NOTE.items() if name != missing}) is None
    assert noted({**NOTE, missing: None}) is None
