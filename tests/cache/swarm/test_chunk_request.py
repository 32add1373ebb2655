"""What a request and its responses say where nothing else was said."""

from __future__ import annotations

from hotplate.cache.swarm.assignment import Missed
from hotplate.cache.swarm.chunk_request import ChunkOffer, ChunkRequest, ChunkResponse


def test_nobody_waits_for_a_request_and_its_asker_has_nothing() -> None:
    request = ChunkRequest("key", 3)
    assert (request.urgent, request.have, request.digests_only) == (False, 0, False)


def test_a_peer_that_gives_nothing_has_nothing_took_no_time_and_may_be_asked_at_once() -> None:
    response, offer = ChunkResponse(Missed.LACKS), ChunkOffer(Missed.LACKS)
    assert (response.have, response.body_bytes) == (0, 0)
    assert (response.took_s, response.retry_s) == (0.0, 0.0)
    assert (offer.have, offer.data) == (0, None)
