"""Which blobs stay: those that a manifest names, and those that one will name."""

from __future__ import annotations

from hotplate.cache.catalog.manifest_index import ManifestIndex


def test_blobs_stay_that_are_held() -> None:
    index = ManifestIndex()
    index.put("tree", ["a", "b"])
    with index.held() as held, index.held() as others:
        held.add("c")
        assert index.blobs() == {"a", "b", "c"}
        others.add("c")
        held.add("d")
        assert index.remove("tree") == {"a", "b"}
        assert index.blobs() == {"c", "d"}
    assert index.blobs() == set()
