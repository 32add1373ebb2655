from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hotplate.cache.catalog.url_index import UrlIndex
from hotplate.cache.origins.locations import Location, Version
from tests.support.cache.fakes import blob_of

ONE = Version("http://h/one", 3, '"1"')
TWO = Version("http://h/two", 3, '"1"')
BOTH = Location("http://h", (ONE, TWO))


def test_what_was_learnt_is_known_after_a_restart(tmp_path: Path) -> None:
    ledger = UrlIndex(tmp_path / "ledger")
    ledger.set_location(BOTH)
    assert ledger.set_blob(ONE, blob_of(b"one")) == blob_of(b"one")
    ledger.close()
    again = UrlIndex(tmp_path / "ledger")
    assert again.location(BOTH.url) == BOTH and again.locations() == [BOTH]
    assert again.blob(ONE) == blob_of(b"one") and again.blob(TWO) is None
    assert again.digests() == {blob_of(b"one").digest}
    again.close()


def test_what_a_first_fetch_has_found_is_known_until_it_is_complete(tmp_path: Path) -> None:
    ledger = UrlIndex(tmp_path / "ledger")
    ledger.set_location(BOTH)
    for chunk in (3, 1):
        ledger.note_chunks(ONE, {chunk: f"digest {chunk}"})
    ledger.close()
    again = UrlIndex(tmp_path / "ledger")
    assert again.draft(ONE) == {3: "digest 3", 1: "digest 1"} and again.draft(TWO) == {}
    assert again.digests() == {ONE.key}, "its file on disk is not swept away"
    again.set_blob(ONE, blob_of(b"one"))
    assert again.draft(ONE) == {} and again.digests() == {blob_of(b"one").digest}
    again.note_chunks(TWO, {0: "digest 0"})
    again.forget(BOTH.url)
    assert again.draft(TWO) == {}
    again.close()


def test_the_first_fetch_of_a_version_is_right_for_ever(tmp_path: Path) -> None:
    for content in (b"one", b"eno"):
        ledger = UrlIndex(tmp_path / "ledger")
        assert ledger.set_blob(ONE, blob_of(content)) == blob_of(b"one")
        ledger.close()


def test_another_tag_or_length_is_another_version(tmp_path: Path) -> None:
    ledger = UrlIndex(tmp_path / "ledger")
    ledger.set_blob(ONE, blob_of(b"one"))
    assert ledger.blob(Version(ONE.url, 3, '"2"')) is None
    assert ledger.blob(Version(ONE.url, 4, '"1"')) is None
    ledger.close()


def test_what_is_forgotten_keeps_its_digests(tmp_path: Path) -> None:
    ledger = UrlIndex(tmp_path / "ledger")
    ledger.set_location(BOTH)
    ledger.set_blob(ONE, blob_of(b"one"))
    ledger.forget(BOTH.url)
    ledger.close()
    again = UrlIndex(tmp_path / "ledger")
    assert again.locations() == [] and again.digests() == set()
    assert again.blob(ONE) == blob_of(b"one")
    again.close()


def test_a_cut_or_damaged_line_is_as_if_never_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = UrlIndex(path)
    for version in (ONE, TWO):
        ledger.set_blob(version, blob_of(b"one"))
    ledger.close()
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        cut = UrlIndex(path)
        assert cut.blob(TWO) is None and cut.blob(ONE) in (None, blob_of(b"one"))
        cut.set_location(BOTH)  # after a torn line
        cut.close()
        assert UrlIndex(path).location(BOTH.url) == BOTH
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        damaged = UrlIndex(path)
        assert {damaged.blob(ONE), damaged.blob(TWO)} <= {None, blob_of(b"one")}
        damaged.close()


def test_only_closing_waits_for_the_disk(tmp_path: Path) -> None:
    syncing, synced = threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        syncing.set()
        synced.wait()

    ledger = UrlIndex(tmp_path / "ledger", slow)
    ledger.set_blob(ONE, blob_of(b"one"))
    syncing.wait()
    ledger.set_blob(TWO, blob_of(b"two"))
    killed = tmp_path / "killed"
    shutil.copy(tmp_path / "ledger", killed)
    closing = threading.Thread(target=ledger.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    synced.set()
    closing.join()
    again = UrlIndex(killed)
    assert again.blob(ONE) == blob_of(b"one") and again.blob(TWO) == blob_of(b"two")
    again.close()


def test_many_threads_write_at_once(tmp_path: Path) -> None:
    ledger = UrlIndex(tmp_path / "ledger")
    versions = [Version(f"http://h/{number}", 3, "") for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: ledger.set_blob(one, blob_of(b"one")), versions))
    ledger.close()
    again = UrlIndex(tmp_path / "ledger")
    assert all(again.blob(one) == blob_of(b"one") for one in versions)
    again.close()
