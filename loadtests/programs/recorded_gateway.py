"""`hotplate gateway`, whose access log has its loop's own time in place of the wall clock's.

A line is written as its request ends, so that with its two durations it says about when the request
came and was granted, by the clock on which the queue itself works.
"""

from __future__ import annotations

import asyncio
import os
import sys

from hotplate.serving.gateway import compiled


class LoopTime(float):
    """A moment of the running loop, which is written as its seconds."""

    @classmethod
    def now(cls, zone: object = None) -> LoopTime:
        return cls(asyncio.get_running_loop().time())

    def isoformat(self, *, timespec: str = "") -> str:
        return f"{self:.6f}"


if __name__ == "__main__":
    compiled.use(os.environ)  # before anything that is compiled is imported
    from hotplate.platform import cli
    from hotplate.serving.gateway.telemetry import access_log

    setattr(access_log, "datetime", LoopTime)  # noqa: B010 - a name of its module, not of its type
    sys.exit(cli.main())
