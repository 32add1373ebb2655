"""What the API server tells of the objects of a kind, with the moment at which it came."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.layout import Layout

_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class Change:
    """One event of a watch."""

    at: float
    """Seconds since 1970, when it came here."""
    kind: str
    """ADDED, MODIFIED or DELETED."""
    object: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


@dataclass
class ObjectWatch:
    """All that came since it began."""

    changes: list[Change] = field(default_factory=list)


@asynccontextmanager
async def watched(kind: str, namespace: str, selector: str = "") -> AsyncIterator[ObjectWatch]:
    """Watches until the block ends, as kubectl does."""
    layout, found = Layout(), ObjectWatch()
    process = await asyncio.create_subprocess_exec(
        layout.program("kubectl"),
        f"--kubeconfig={layout.kubeconfig}",
        *("get", kind, f"--namespace={namespace}", f"--selector={selector}"),
        *("--watch", "--output-watch-events", "--output=json"),
        stdout=asyncio.subprocess.PIPE,
    )
    reading = asyncio.create_task(_read(process, found))
    try:
        yield found
    finally:
        process.kill()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        await process.wait()


async def _read(process: asyncio.subprocess.Process, found: ObjectWatch) -> None:
    assert process.stdout is not None
    text, decoder = "", json.JSONDecoder()
    while piece := await process.stdout.read(_PIECE_BYTES):
        text += piece.decode()
        at = time.time()
        while text := text.lstrip():
            try:
                event, length = decoder.raw_decode(text)
            except ValueError:  # the rest of it is still to come
                break
            found.changes.append(Change(at, event["type"], event["object"]))
            text = text[length:]
