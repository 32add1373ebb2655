"""Which environments may go."""

from __future__ import annotations

import os
from pathlib import Path

from hotplate.serving.replica.environments.usage import Usage, Use, removable


def use(name: str, last_at: float, *bentos: str) -> Use:
    return Use(name, frozenset(bentos), last_at)


def test_what_a_wanted_bento_uses_stays_however_old() -> None:
    uses = [use("old", 1, "a", "b"), use("new", 9, "c")]
    assert list(removable(uses, {"b"}, spare=0)) == ["new"]


def test_the_spare_ones_are_those_used_last_and_the_others_go_with_a_reason() -> None:
    uses = [use("first", 1, "a"), use("third", 3, "c"), use("second", 2, "b")]
    gone = removable(uses, set(), spare=1)
    assert set(gone) == {"first", "second"}
    assert "1 that nobody uses were used later" in gone["first"]


def test_with_room_for_all_nothing_goes() -> None:
    assert removable([use("a", 1, "x")], set(), spare=5) == {}


def test_the_record_of_an_environment_does_not_grow_with_the_bentos_that_have_used_it(
    tmp_path: Path,
) -> None:
    usage = Usage(tmp_path)
    for at, bento in enumerate(("a", "b", "c", "d")):
        usage.note("env", bento)
        os.utime(tmp_path / "env" / bento, (at, at))
    usage.trim("env", {"b", "c"})
    assert usage.read() == [use("env", 3, "b", "c")], "the time of d's use is kept, not its record"
    usage.trim("env", set())
    assert usage.read() == [use("env", 3, "c")]
    usage.forget("env")
    assert usage.read() == []
