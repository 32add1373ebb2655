"""What replicas write is read like any file, on the event loop."""

from pathlib import Path

from hotplate.serving.replica import runtime


async def read(directory: str, name: str, most_bytes: int) -> bytes:
    return Path(directory, name).read_bytes()  # noqa: ASYNC240


INSTEAD = [(runtime, "_read_beginning", read)]
