"""An environment that one node has built, on another node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica.environments.builder import EnvironmentBuilder
from hotplate.serving.replica.environments.registry import EnvironmentRegistry, bound_script
from tests.serving.replica.environments.test_builder import bento_with_wheel, ensure, imports_tiny
from tests.support.replica.replicas import environments_in


@asynccontextmanager
async def node(folder: Path, blobs: BlobStore) -> AsyncIterator[EnvironmentBuilder]:
    """The environments of a node with an agent, which has no file view."""
    async with run(AgentSettings(folder / "agent", blobs.url)) as url:
        client = AgentClient(url)
        environments = environments_in(folder, registry=EnvironmentRegistry(blobs, client))
        yield environments
        await environments.close()
        await client.close()


async def test_what_one_node_has_built_another_takes(tmp_path: Path) -> None:
    blobs = BlobStore(f"file://{tmp_path}/store")
    bento = bento_with_wheel(tmp_path / "bento")
    async with node(tmp_path / "first", blobs) as first:
        built = await ensure(first, bento)
        await first.published()
        assert first.manifests() == set()
    async with node(tmp_path / "second", blobs) as second:
        taken = await ensure(second, bento)
        assert not second.folder("acme", taken.digest).log.exists()  # nothing was built
        assert taken.digest == built.digest and taken.python != built.python
        assert await asyncio.to_thread(imports_tiny, taken)
        assert len(second.manifests()) == 1
        again = await ensure(environments_in(tmp_path / "second"), bento)
        assert again == replace(taken, built=False)
        assert await second.sweep(frozenset, spare=0)
        assert second.manifests() == set()


async def test_what_cannot_run_here_is_built_here(tmp_path: Path) -> None:
    blobs = BlobStore(f"file://{tmp_path}/store")
    bento = bento_with_wheel(tmp_path / "bento")
    async with node(tmp_path / "first", blobs) as first:
        digest = (await ensure(first, bento)).digest
        await first.published()
    (note,) = (tmp_path / "store" / "environments").iterdir()
    note.write_text(note.read_text().replace("python3", "python-of-another-node"))
    async with node(tmp_path / "second", blobs) as second:
        assert (await ensure(second, bento)).digest == digest
        assert second.folder("acme", digest).log.exists()


def test_a_script_that_names_its_folder_cannot_be_moved(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "free").write_text("#!/bin/sh\n")
    assert bound_script(tmp_path) is None
    (tmp_path / "bin" / "bound").write_text(f"#!{tmp_path}/bin/python\n")
    assert bound_script(tmp_path) == tmp_path / "bin" / "bound"
