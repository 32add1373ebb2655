"""Users of a method that streams: server-sent events, or lines.

    locust -f streams.py --host URL --route /generate --payload '{"prompt": "Hello"}'

Locust's statistics have three rows: POST is a whole stream, FIRST the time to its first event, and
BETWEEN the time between two events.
"""

from __future__ import annotations

from locust import task

from stream_user import StreamUser


class StreamReader(StreamUser):
    @task
    def stream(self) -> None:
        self.read(self.payload())
