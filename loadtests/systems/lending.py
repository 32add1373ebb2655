"""Who lends a benchmark's files: the node's agent, or where that cannot run a stand-in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hotplate.serving.streaming.source import AGENT_SOCKET, TREES
from loadtests.harness.child_process import checkout_environ
from loadtests.harness.distributions import missing
from loadtests.systems.agents import agent
from loadtests.systems.lender import Lender

AGENT_NEEDS = ("aiohttp", "blake3", "fsspec", "prometheus_client")


@dataclass(frozen=True)
class Lent:
    environ: Mapping[str, str]
    """Of a process that reads such files."""
    scheme: str = ""
    """What to put before a file's path."""
    remark: str = ""


@asynccontextmanager
async def lending(folder: Path, files: Path, memory_bytes: int) -> AsyncIterator[Lent]:
    """Files of `files` can be streamed: they arrive when they are opened first, and stay.

    `folder` is for the lender's own. Raises BenchmarkFailed.
    """
    environ = checkout_environ()
    absent = missing(AGENT_NEEDS)
    if not absent:
        path = {"PYTHONPATH": environ["PYTHONPATH"]}
        async with agent(folder / "agent", memory_bytes=memory_bytes, environ=path) as lender:
            yield Lent(environ | lender.environ, "file://")
        return
    with Lender(folder / "socket"):
        place = {TREES: str(files), AGENT_SOCKET: str(folder / "socket")}
        remark = f"by a stand-in for the agent, which needs {', '.join(absent)}"
        yield Lent(environ | place, remark=remark)
