"""A caller that reads streams, and tells Locust's statistics when their events come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter as clock

from locust.contrib.fasthttp import ResponseContextManager

from deployment_user import DeploymentUser, succeeded
from server_sent_events import EventReader

FIRST, BETWEEN = "FIRST", "BETWEEN"
"""Rows of the statistics: the time to a stream's first event, and that between two."""


class StreamUser(DeploymentUser):
    abstract = True

    def read(self, body: bytes, counts: Callable[[bytes], bool] = bool) -> None:
        """Posts, and reads the answer to its end; `counts` says of an event's data if it counts."""
        began = last = clock()
        row = FIRST
        with self.ask(self.route, body, stream=True) as answer:
            try:
                for data in _data(answer):
                    if counts(data):
                        now = clock()
                        self.report(row, now - last)
                        last, row = now, BETWEEN
            finally:
                answer.request_meta["response_time"] = (clock() - began) * 1000
            if row is FIRST and succeeded(answer):
                answer.failure("the stream had no event")


def _data(answer: ResponseContextManager) -> Iterator[bytes]:
    """Of each server-sent event as it comes; the lines of a stream of another kind."""
    if not succeeded(answer):
        return
    events = EventReader()
    is_sse = answer.headers is not None and "event-stream" in answer.headers.get("content-type", "")
    while line := answer.stream.readline(b"\n"):
        yield from events.feed(line) if is_sse else [line]
    if rest := answer.stream.read():
        yield from events.feed(rest) if is_sse else [rest]
