"""A folder whose files the node's agent streams, or a stand-in where the agent cannot run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hotplate.serving.streaming.source import AGENT_SOCKET, TREES
from loadtests.harness.child_process import checkout_environ
from loadtests.harness.distributions import missing
from loadtests.systems.agents import agent
from loadtests.systems.stand_in_agent import StandInAgent

AGENT_NEEDS = ("aiohttp", "blake3", "fsspec", "prometheus_client")


@dataclass(frozen=True)
class StreamedFolder:
    environ: Mapping[str, str]
    """The variables of a process that reads its files."""
    scheme: str = ""
    """What stands before a file's path in its URL."""
    remark: str = ""


@asynccontextmanager
async def streamed(folder: Path, files: Path, memory_bytes: int) -> AsyncIterator[StreamedFolder]:
    """The folder `files`: a file of it is loaded when it is opened first, and stays in memory.

    `folder` is for the agent's own files. Raises BenchmarkFailed.
    """
    environ = checkout_environ()
    absent = missing(AGENT_NEEDS)
    if not absent:
        path = {"PYTHONPATH": environ["PYTHONPATH"]}
        async with agent(folder / "agent", memory_bytes=memory_bytes, environ=path) as node:
            yield StreamedFolder(environ | node.environ, "file://")
        return
    with StandInAgent(folder / "socket"):
        place = {TREES: str(files), AGENT_SOCKET: str(folder / "socket")}
        remark = f"by a stand-in for the agent, which needs {', '.join(absent)}"
        yield StreamedFolder(environ | place, remark=remark)
