"""What is known of a cluster follows its events."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.deploy.cluster.kinds import Ref
from hotplate.deploy.cluster.mirror import Known
from hotplate.deploy.errors import ClusterRefused


def event(what: str, name: str = "a", version: int = 2) -> dict[str, Any]:
    meta = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return {"type": what, "object": {"metadata": meta}}


@pytest.fixture
def known() -> Known:
    made = Known("Pod")
    made.replace([event("LISTED", version=1)["object"]], "1")
    return made


def test_events_add_change_and_remove(known: Known) -> None:
    assert known.follow(event("ADDED", "b"))
    assert known.follow(event("MODIFIED", "a", 3))
    assert known.follow(event("DELETED", "b", 4))
    assert set(known.objects) == {Ref("Pod", "n", "a")}
    assert known.version == "4"


def test_the_same_again_is_no_change(known: Known) -> None:
    assert not known.follow(event("ADDED", version=1))
    assert not known.follow(event("DELETED", "unknown", 2))


def test_a_bookmark_moves_the_version_alone(known: Known) -> None:
    assert not known.follow(event("BOOKMARK", "", 9))
    assert known.version == "9"
    assert len(known.objects) == 1


def test_an_error_says_that_the_watch_is_over(known: Known) -> None:
    with pytest.raises(ClusterRefused, match="too old") as caught:
        known.follow({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
    assert caught.value.status == 410


def test_a_new_list_forgets_what_has_gone(known: Known) -> None:
    known.replace([event("LISTED", "c")["object"]], "7")
    assert set(known.objects) == {Ref("Pod", "n", "c")}
