"""`hotplate agent` as a process, here or on a node of a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.cache import own_token
from hotplate.cache.client import AgentClient
from hotplate.platform.processes.ports import free_port
from hotplate.serving.streaming.agent_endpoint import ADDRESS, TOKEN_FILE
from loadtests.harness.child_process import (
    START_S,
    BenchmarkFailed,
    Child,
    clean_environ,
    module,
    running,
)
from loadtests.harness.network import HERE, Node

PULL_S = 240.0


@dataclass(frozen=True)
class Agent:
    """An agent that is ready."""

    address: str
    data: Path
    process: Child
    token_file: Path
    node: Node = HERE

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which a program finds it."""
        return {ADDRESS: self.address, TOKEN_FILE: str(self.token_file)}

    def client(self) -> AgentClient:
        """A client, which the caller closes."""
        return AgentClient(f"http://{self.address}", self.token_file.read_text().strip())

    @asynccontextmanager
    async def puller(self, url: str, log: Path) -> AsyncIterator[Puller]:
        """A process that will pull a URL there."""
        flags = ("--token-file", self.token_file)
        command = module("loadtests.programs.puller", self.address, url, *flags)
        async with running(*self.node.enter, *command, log=log, piped=True) as child:
            await child.next_json()
            yield Puller(child)

    async def pull(self, url: str, log: Path) -> dict[str, Any]:
        """`bytes`, `seconds`, `from_origin_bytes`, `from_peers_bytes`."""
        async with self.puller(url, log) as puller:
            return await puller.pull()


@dataclass(frozen=True)
class Puller:
    _child: Child

    async def pull(self) -> dict[str, Any]:
        self._child.write_line("go")
        answer: dict[str, Any] = await self._child.next_json(PULL_S)
        return answer

    async def digest(self) -> str:
        """The digest of the bytes that a replica there reads."""
        self._child.write_line("digest")
        digest: str = (await self._child.next_json())["digest"]
        return digest


@asynccontextmanager
async def agent(
    data: Path,
    *,
    memory_bytes: int,
    node: Node = HERE,
    port: int = 0,
    peers: Sequence[str] = (),
    token_file: Path | None = None,
    origin: str = "",
    view: Path | None = None,
    environ: Mapping[str, str] | None = None,
    grace_s: float = 0.0,
) -> AsyncIterator[Agent]:
    """An agent that runs until the block ends, with its files shown at `view`, if that is given.

    Without a token file it makes one; peers share one. At its end it has `grace_s` to write its
    files to disk, which few benchmarks need. Raises BenchmarkFailed.
    """
    port = port or free_port(node.host)
    address = f"{node.host}:{port}"
    command = module(
        "hotplate.platform.cli",
        *("agent", "--data", data, "--host", node.host, "--port", port, "--memory", memory_bytes),
        *(("--peers", ",".join(peers)) if peers else ()),
        *(("--token-file", token_file) if token_file else ()),
        *(("--origin", origin) if origin else ()),
        *("--mount", view or "no"),
    )
    log = data.with_name(f"{data.name}.log")
    environ = {**clean_environ(), **(environ or {})}
    async with running(*node.enter, *command, log=log, environ=environ, grace_s=grace_s) as child:
        ends_at = asyncio.get_running_loop().time() + START_S
        while f"http://{address}" not in child.log_text:
            if not child.alive or asyncio.get_running_loop().time() > ends_at:
                raise BenchmarkFailed(f"the agent on {address} is not ready: {child.log_tail}")
            await asyncio.sleep(0.02)
        yield Agent(address, data, child, token_file or data / own_token.FILE, node)
