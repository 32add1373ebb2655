"""Who watches learns of each change, when it happens and when it is kept."""

from __future__ import annotations

from hotplate.platform.live.change_feed import ChangeFeed


def test_a_change_is_told_twice() -> None:
    feed, woken = ChangeFeed(), []
    watch = feed.watch(lambda: woken.append(1))
    feed.changed(1, 2)
    assert (watch.take(), watch.take()) == ({1, 2}, set())
    feed.changed(2)
    feed.written()
    assert watch.take() == {1, 2}
    assert len(woken) == 3
    feed.written()
    assert len(woken) == 3, "nothing was changed since"


def test_who_watches_from_now_on_learns_what_is_kept_of_what_was_before() -> None:
    feed = ChangeFeed()
    feed.changed(1)
    watch = feed.watch(lambda: None)
    assert watch.take() == set()
    feed.written()
    assert watch.take() == {1}


def test_watches_end() -> None:
    feed = ChangeFeed()
    watch, other = feed.watch(lambda: None), feed.watch(lambda: None)
    feed.end(watch)
    feed.changed(1)
    assert (watch.take(), other.take()) == (set(), {1})
