"""What threads and peers see of the contents on their way here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from hotplate.cache.errors import CacheError, UnknownBlob
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetch import Fetch, FetchOrder
from hotplate.cache.manifest import CHUNK_BYTES, Blob
from hotplate.cache.origins.blob_source import OnProgress, ignore
from hotplate.cache.swarm.assignment import ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_request import ChunkRequest, ChunkResponse
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.participants import PeerState
from tests.support.cache.fakes import blob_of, random_bytes
from tests.support.patience import PATIENCE_S

DATA = random_bytes(3 * CHUNK_BYTES, 1)
BLOB = blob_of(DATA)
_T = TypeVar("_T")


class Place:
    """Memory that already has the bytes."""

    view = memoryview(DATA)

    def reserve(self, offset: int, length: int) -> None:
        return None

    def part(self, offset: int, length: int) -> memoryview:
        return self.view[offset : offset + length]

    def put(self, offset: int, part: memoryview) -> None:
        return None


class Nowhere:
    """An origin that nothing here asks."""

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        raise AssertionError


class Node:
    """The contents of one node, with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 1.0
        self.awaited = set[str]()
        self.announced = 0
        self.verified = list[int]()
        self.errors = list[CacheError]()
        self.contents = Contents(
            4,
            lambda: self.now,
            me="me",
            awaited=lambda _now: self.awaited,
            announce=self._announce,
        )
        self._threads = ThreadPoolExecutor(4)

    def _announce(self) -> None:
        self.announced += 1

    def begin(
        self, content: Blob = BLOB, *, urgent: bool = False, chunks: Chunks | None = None
    ) -> Fetch:
        return self.contents.begin(
            FetchOrder(
                key=content.digest,
                content=content,
                origin=Nowhere(),
                chunks=chunks or Chunks("model", len(content.chunks)),
                destination=Place(),
                on_verified=self.verified.append,
                on_failed=self.errors.append,
                urgent=urgent,
            )
        )

    def take(self) -> tuple[Fetch, Assignment]:
        taken = self.contents.next_step()
        assert taken is not None
        return taken

    def on_thread(self, work: Callable[[], _T]) -> Future[_T]:
        return self._threads.submit(work)

    def close(self) -> None:
        self.contents.close()
        self._threads.shutdown()


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def test_a_thread_waits_until_there_is_something_to_bring(node: Node) -> None:
    taking = node.on_thread(node.take)
    fetch = node.begin()
    assert taking.result(PATIENCE_S)[0] is fetch
    assert taking.result()[1].source == ORIGIN


def test_closing_ends_the_threads_that_wait(node: Node) -> None:
    waiting = [node.on_thread(node.contents.next_step) for _ in range(3)]
    node.contents.close()
    assert [one.result(PATIENCE_S) for one in waiting] == [None, None, None]
    assert node.contents.next_step() is None


def test_what_has_come_is_reported_and_ends_with_the_last_chunk(node: Node) -> None:
    fetch = node.begin()
    for _ in range(3):
        taken, step = node.take()
        node.contents.request_ended(taken, step)
        node.contents.verified(taken, step)
    assert node.verified == [0, 1, 2] and fetch.ended
    assert node.contents.find(BLOB.digest) is None


def test_nothing_comes_from_the_origin_before_all_awaited_peers_have_given_their_state(
    node: Node,
) -> None:
    node.awaited = {"one:1", "two:2"}
    fetch = node.begin()
    taking = node.on_thread(node.take)
    node.contents.settle("one:1", [fetch.key])
    node.contents.settle("two:2", ["another content"])
    assert not taking.done()
    node.contents.settle("two:2", [fetch.key])
    assert taking.result(PATIENCE_S)[1].source == ORIGIN


def test_a_peer_that_has_a_chunk_is_asked_for_it_and_when_it_is_gone_the_origin_is(
    node: Node,
) -> None:
    fetch = node.begin()
    node.contents.receive("peer", {fetch.key: PeerState(0b111, number=1)}, {})
    announced = node.announced
    assert announced > 1, "a participant has joined, and the others are greeted"
    taken, step = node.take()
    assert step.source == "peer"
    node.contents.request_ended(taken, step)
    assert not node.contents.missed(taken, step, ChunkResponse(Missed.STALLED))
    node.contents.forget("peer")
    assert node.announced > announced
    assert node.take()[1].source == ORIGIN


def test_a_peer_that_lies_is_banned_once(node: Node) -> None:
    fetch = node.begin()
    node.contents.receive("peer", {fetch.key: PeerState(0b111, number=1)}, {})
    first = node.take()
    node.contents.request_ended(*first)
    assert node.contents.missed(*first, ChunkResponse(Missed.CORRUPT))
    assert not node.contents.missed(*first, ChunkResponse(Missed.CORRUPT))
    assert node.take()[1].source == ORIGIN


def test_a_failure_that_is_final_is_reported_once_and_ends_the_fetch(node: Node) -> None:
    fetch = node.begin()
    error = UnknownBlob("there is none")
    taken, step = node.take()
    again, other = node.take()
    node.contents.failed(taken, step, error)
    node.contents.failed(again, other, error)
    assert node.errors == [error] and fetch.ended


def test_what_is_urgent_goes_first_and_each_peer_gets_the_state_of_the_first_only(
    node: Node,
) -> None:
    node.begin()
    small = blob_of(random_bytes(5, 3))
    urgent = node.begin(small, urgent=True)
    assert node.take()[0] is urgent
    assert list(node.contents.states_for("peer", 1)) == [small.digest]
    assert len(node.contents.states_for("peer", 9)) == 2


def test_a_peer_that_asks_for_a_chunk_gets_it_as_soon_as_it_is_here(node: Node) -> None:
    fetch = node.begin()
    taken, step = node.take()
    request = ChunkRequest(fetch.key, step.index, asker="peer")
    waiting = node.on_thread(lambda: fetch.wait_for_chunk(request, 9.0, lambda: node.now))
    node.contents.verified(taken, step)
    offer = waiting.result(PATIENCE_S)
    assert offer is not None and offer.missed is None
    assert bytes(offer.data or b"") == DATA[:CHUNK_BYTES] and offer.digest == BLOB.chunks[0]


@pytest.mark.parametrize(
    ("index", "until", "missed"), [(1, 1.0, Missed.NOT_YET), (3, 9.0, Missed.LACKS)]
)
def test_a_peer_that_cannot_have_a_chunk_learns_why(
    node: Node, index: int, until: float, missed: Missed
) -> None:
    fetch = node.begin()
    offer = fetch.wait_for_chunk(ChunkRequest(fetch.key, index), until, lambda: node.now)
    assert offer is not None and offer.missed is missed


def test_a_peer_that_waits_for_a_fetch_that_ends_learns_so(node: Node) -> None:
    fetch = node.begin()
    request = ChunkRequest(fetch.key, 1, asker="peer")
    waiting = node.on_thread(lambda: fetch.wait_for_chunk(request, 9.0, lambda: node.now))
    node.contents.cancel(fetch)
    assert waiting.result(PATIENCE_S) is None
    assert fetch.wait_for_chunk(request, 9.0, lambda: node.now) is None


class FaultyChunks(Chunks):
    """Chunks with a bug."""

    def missing_bits(self, now: float) -> int:
        raise RuntimeError("a bug")


def test_a_fault_in_choosing_chunks_ends_that_fetch_and_no_thread(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = node.begin(urgent=True, chunks=FaultyChunks("faulty", len(BLOB.chunks)))
    fetch = node.begin(blob_of(random_bytes(5, 3)))
    assert node.take()[0] is fetch
    assert faulty.ended and [str(error) for error in node.errors] == [
        "faulty: no next chunk was chosen (RuntimeError('a bug'))"
    ]
    assert "faulty cannot be fetched: no next chunk could be chosen" in caplog.text


def test_many_threads_bring_each_chunk_once(node: Node) -> None:
    chunks = 64
    content = Blob(chunks * CHUNK_BYTES, ("0" * 64,) * chunks)
    ended = threading.Event()
    taken: list[int] = []

    def bring() -> None:
        while (found := node.contents.next_step()) is not None:
            fetch, step = found
            taken.append(step.index)
            node.contents.request_ended(fetch, step)
            node.contents.verified(fetch, step)
            if fetch.ended:
                ended.set()

    threads = [node.on_thread(bring) for _ in range(4)]
    node.begin(content)
    assert ended.wait(PATIENCE_S)
    node.contents.close()
    for thread in threads:
        thread.result(PATIENCE_S)
    assert sorted(taken) == sorted(node.verified) == list(range(chunks))
