"""One load of a model by a process of its own, ours or a peer's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests.harness.child_process import clean_environ, module, running
from loadtests.harness.network import HERE, Node
from loadtests.peers import weights_environment
from loadtests.systems.agents import Agent
from loadtests.systems.model_file import ModelFile

TRANSFER, STREAM, LOAD = "transfer", "stream", "load"
FSSPEC, AIOHTTP = "fsspec-load_file", "aiohttp-load_file"
FASTSAFETENSORS, RUNAI = "aiohttp-fastsafetensors", "runai"
INSTALLED = (FASTSAFETENSORS, RUNAI)
"""These run in an environment of their own."""
COLUMNS = {
    TRANSFER: "raw",
    STREAM: "ours",
    LOAD: "ours_load",
    FSSPEC: "fsspec",
    AIOHTTP: "aiohttp",
    FASTSAFETENSORS: "fastsafetensors",
    RUNAI: "runai",
}
"""The table's column of each way."""
LIMIT_S = 120.0


@dataclass(frozen=True)
class Sample:
    seconds: float
    cpu_s: float
    """Of all processes on the reading side: the loader, and the agent."""
    digest: str


async def load(
    way: str,
    model: ModelFile,
    url: str,
    folder: Path,
    *,
    agent: Agent | None = None,
    connections: int = 1,
    verify: bool = False,
    environ: Mapping[str, str] | None = None,
    node: Node = HERE,
) -> Sample:
    """Loads the model in one of the loader's ways; ours need the node's `agent`.

    Raises BenchmarkFailed.
    """
    with TemporaryDirectory(dir=folder) as own:
        flags = ["--url", url, "--size", model.tensor_bytes]
        flags += ["--skip", model.size_bytes - model.tensor_bytes]
        flags += ["--file", f"{own}/fetched.safetensors", "--connections", connections]
        flags += ["--verify"] if verify else []
        python = str(weights_environment.PYTHON if way in INSTALLED else sys.executable)
        command = [python, *module("loadtests.programs.weight_loader", way, *flags)[1:]]
        whole = {**clean_environ(), **(environ or {})}
        if agent is not None:
            whole |= agent.environ
        log = Path(own) / "loader.log"
        async with running(*node.enter, *command, log=log, environ=whole, piped=True) as loader:
            await loader.next_json(LIMIT_S)
            before_s = agent.process.cpu_s() if agent else 0.0
            loader.write_line("go")
            mine = Sample(**await loader.next_json(LIMIT_S))
            agent_s = agent.process.cpu_s() - before_s if agent else 0.0
    return Sample(mine.seconds, mine.cpu_s + agent_s, mine.digest)
