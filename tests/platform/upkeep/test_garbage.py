"""What goes of a blob store, on both sides of each limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from hotplate.cache.store.contents import Listing, StoredNote
from hotplate.cache.store.storage import StoredObject
from hotplate.platform.upkeep.garbage import FolderClaim, Garbage, Rules, Wanted, garbage, staying

GRACE_AGO = 1000.0
OLD, YOUNG = StoredObject(10, GRACE_AGO - 1), StoredObject(10, GRACE_AGO)
RULES = Rules(GRACE_AGO)
NOTE = "environments/" + "a" * 32


def listing(
    manifests: Mapping[str, StoredObject] | None = None,
    blobs: Mapping[str, StoredObject] | None = None,
    notes: Mapping[str, StoredNote] | None = None,
    uploads: Mapping[str, StoredObject] | None = None,
    incoming: Mapping[str, StoredObject] | None = None,
) -> Listing:
    return Listing(manifests or {}, blobs or {}, notes or {}, uploads or {}, incoming or {})


def note(stored: StoredObject, manifest: str, bentos: Sequence[str] = ()) -> StoredNote:
    return StoredNote(stored, {"manifest": manifest, "bentos": list(bentos)})


def test_what_no_wanted_manifest_has_goes_and_what_both_have_stays() -> None:
    there = listing(dict.fromkeys(["old", "new"], OLD), dict.fromkeys(["both", "a", "b"], OLD))
    blobs_of = {"new": {"both", "b"}}
    gone = garbage(there, Wanted({"new"}), RULES, blobs_of)
    assert set(gone.manifests) == {"old"}
    assert set(gone.blobs) == {"a"}
    assert all(gone.blobs.values()), "each has a reason"


def test_what_is_younger_than_the_grace_stays_with_all_that_it_has() -> None:
    there = listing(
        {"young": YOUNG}, {"its": OLD, "young": YOUNG, "old": OLD}, incoming={"w": YOUNG, "x": OLD}
    )
    gone = garbage(there, Wanted(set()), RULES, {"young": {"its"}})
    assert gone.manifests == {}
    assert set(gone.blobs) == {"old"}
    assert set(gone.incoming) == {"x"}


@pytest.mark.parametrize(
    ("wanted", "stored", "bentos", "stays"),
    [
        (Wanted(set()), OLD, ["bento"], False),
        (Wanted({"bento"}), OLD, ["bento"], True),
        (Wanted({"another"}), OLD, ["bento"], False),
        (Wanted(set(), {NOTE}), OLD, [], True),
        (Wanted(set()), YOUNG, [], True),
    ],
)
def test_an_environment_stays_with_the_bentos_that_use_it(
    wanted: Wanted, stored: StoredObject, bentos: list[str], stays: bool
) -> None:
    there = listing({"tree": OLD}, {"file": OLD}, {NOTE: note(stored, "tree", bentos)})
    assert ("tree" in staying(there, wanted, RULES).manifests) is stays
    gone = garbage(there, wanted, RULES, {"tree": {"file"}})
    assert bool(gone) is not stays
    if not stays:
        assert (set(gone.notes), set(gone.manifests), set(gone.blobs)) == (
            {NOTE},
            {"tree"},
            {"file"},
        )


def test_blobs_stay_that_something_newer_than_the_listing_consists_of() -> None:
    there = listing({}, {"one": OLD, "two": OLD, "none": OLD}, {NOTE: note(YOUNG, "built")})
    gone = garbage(there, Wanted({"pushed"}), RULES, {"built": {"one"}, "pushed": {"two"}})
    assert set(gone.blobs) == {"none"}
    assert not gone.manifests


def test_parts_go_when_their_upload_is_over_and_those_of_tasks_never() -> None:
    uploads = {"open": OLD, "over": OLD, "young": YOUNG, "task-1": OLD}
    gone = garbage(listing(uploads=uploads), Wanted(set(), uploads={"open"}), RULES, {})
    assert set(gone.uploads) == {"over"}


def test_what_was_there_before_the_claim_goes_only_if_it_is_known_to_be_our_own() -> None:
    before, after = StoredObject(1, 499.0), StoredObject(1, 500.0)
    there = listing(
        {"theirs": before, "ours": before, "later": after},
        {"shared": before, "our file": before, "nobody's": before, "later file": after},
        {NOTE: note(before, "theirs")},
        {"upload": before},
        {"incoming": before},
    )
    rules = Rules(GRACE_AGO, FolderClaim(500.0, {"ours"}))
    blobs_of = {"theirs": {"shared"}, "ours": {"shared", "our file"}, "later": {"later file"}}
    gone = garbage(there, Wanted(set()), rules, blobs_of)
    assert gone == Garbage(
        manifests=gone.manifests, blobs=gone.blobs, notes={}, uploads={}, incoming={}
    )
    assert set(gone.manifests) == {"ours", "later"}
    assert set(gone.blobs) == {"our file", "later file"}
