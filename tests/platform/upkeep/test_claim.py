"""Whose a blob store is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.errors import CannotStart
from hotplate.platform.upkeep.claim import claim, is_ours, ownership
from hotplate.platform.upkeep.garbage import FolderClaim
from tests.support.cache import stores


def none() -> set[str]:
    return set()


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_store_is_the_first_installations_and_another_one_is_refused(
    kind: str, tmp_path: Path
) -> None:
    with stores.store(kind, tmp_path) as blobs:
        for _ in range(2):
            claim(blobs, "first", none, shared=True)
        with pytest.raises(CannotStart, match=r"another installation's.*'first'.*hotplate.json"):
            claim(blobs, "second", none, shared=True)
        assert is_ours(blobs, "first")
        assert ownership(blobs.contents.claim() or {}) == FolderClaim(), "nothing was there before"


def test_of_files_from_before_there_were_claims_only_what_is_named_is_ours(
    tmp_path: Path,
) -> None:
    blobs = BlobStore(f"file://{tmp_path}/store")
    named, other = (blobs.put_manifest(Manifest(())), "0" * 64)
    claim(blobs, "first", lambda: {named}, shared=True)
    found = ownership(blobs.contents.claim() or {})
    assert found.own == {named} and other not in found.own
    (stored,) = blobs.contents.listing().manifests.values()
    assert stored.modified_at <= found.since < math.inf


def test_a_claim_that_was_cut_leaves_all_files_alone() -> None:
    assert ownership({"installation": "first", "since": None, "own": []}).since == math.inf


def test_the_data_directorys_own_folder_follows_its_database(tmp_path: Path) -> None:
    """There is one platform in a data directory, and a new database may be put there."""
    blobs = BlobStore(f"file://{tmp_path}/store")
    blobs.put_manifest(Manifest(()))
    claim(blobs, "first", none, shared=False)
    claim(blobs, "second", none, shared=False)
    assert is_ours(blobs, "second")
    assert ownership(blobs.contents.claim() or {}) == FolderClaim()
