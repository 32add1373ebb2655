"""Commands that run in forks of one process, which has imported what they need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.fork_servers import address_of

SERVER = Path(__file__).with_name("fork_server.py")


async def run(
    argv: list[str], environ: Mapping[str, str], folder: Path, program: str = ""
) -> tuple[int, str]:
    """The exit status and the output of `bentoml …` or `hotplate …`, or else of a program."""
    asked = {"argv": argv, "environ": dict(environ), "folder": str(folder), "program": program}
    reader, writer = await asyncio.open_unix_connection(address_of(SERVER))
    try:
        writer.write(json.dumps(asked).encode() + b"\n")
        said = await reader.read()
    finally:
        writer.close()
    return said[-1], said[:-1].decode()
