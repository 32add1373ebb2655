"""Origins as processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.child_process import Child, module, running
from loadtests.harness.network import HERE, Node
from loadtests.systems.model_file import BUCKET, ModelFile


@dataclass(frozen=True)
class Origin:
    """An origin that runs."""

    url: str
    process: Child

    def url_of(self, model: ModelFile) -> str:
        return f"{self.url}/{model.key}"

    @property
    def s3(self) -> dict[str, str]:
        """The variables by which a client takes it for S3."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        }

    async def sent_bytes(self, folder: str = BUCKET) -> int:
        """How many bytes of files below this folder it has sent so far."""
        self.process.write_line("")
        sent: int = (await self.process.next_json()).get(folder, 0)
        return sent


@asynccontextmanager
async def origin(
    root: Path, log: Path, bytes_per_s: float = 0.0, node: Node = HERE
) -> AsyncIterator[Origin]:
    """An origin of the files below `root`; each connection has this speed (0 = no limit)."""
    command = module(
        "loadtests.programs.origin", root, "--host", node.host, "--bytes-per-s", bytes_per_s
    )
    async with running(*node.enter, *command, log=log, piped=True) as child:
        yield Origin(f"http://{node.host}:{(await child.next_json())['port']}", child)
