"""Compiled code of one replica, for the next one of the same model, versions and GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.cache.client import TreeInfo
from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica import compile_cache as compiled
from hotplate.serving.replica.compile_cache import CompileCache, key
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import (
    Agent,
    Phases,
    lend_own_environment,
    runtime_of,
    tree,
    workload,
)


class FakeAgent:
    """Writes a tree out of the store."""

    def __init__(self, blobs: BlobStore, folder: Path) -> None:
        self._blobs = blobs
        self._folder = folder

    async def tree(self, manifest: str, wait: str) -> TreeInfo:
        for entry in self._blobs.get_manifest(manifest).entries:
            path = self._folder / entry.path
            if entry.blob is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            offset, length = entry.span
            path.write_bytes(b"".join(self._blobs.chunks(entry.blob))[offset : offset + length])
            path.chmod(0o444)
        return tree(self._folder)


def kernel(folder: Path, variable: str) -> Path:
    """A file in the cache that the variable names."""
    path = Path(compiled.variables(folder)[variable], "ab", "kernel")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class Node:
    """A node with its replicas, on a store that all nodes share."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        blobs = BlobStore(f"file://{tmp_path}/store")
        self.folder = tmp_path / name
        self.folder.mkdir()
        self.code = CompileCache(self.folder / "code", blobs, FakeAgent(blobs, tmp_path / "view"))

    async def replica(self, name: str) -> Path:
        folder = self.folder / name
        await self.code.take("acme", key("acme", ["model"], "environment", "H100"), folder)
        return folder


def test_each_part_of_the_key_matters() -> None:
    keys = {
        key("acme", ["a", "b"], "environment", "H100"),
        key("acme", ["a"], "environment", "H100"),
        key("acme", ["a", "b"], "newer", "H100"),
        key("acme", ["a", "b"], "environment", "L4"),
        key("evil", ["a", "b"], "environment", "H100"),
    }
    assert len(keys) == 5
    assert key("acme", ["b", "a"], "environment", "H100") in keys


@pytest.mark.parametrize("ended", [False, True])
async def test_what_one_replica_compiled_the_next_has_on_any_node(
    tmp_path: Path, ended: bool
) -> None:
    here, there = Node(tmp_path, "here"), Node(tmp_path, "there")
    first = await here.replica("first")
    await here.code.keep(first, ended=False)
    assert not here.code.manifests(), "nothing was compiled yet"
    for variable in compiled.variables(first):
        kernel(first, variable).write_text(variable)
    await here.code.keep(first, ended=ended)
    (manifest,) = here.code.manifests()
    second = await there.replica("second")
    for variable in compiled.variables(second):
        restored = kernel(second, variable)
        assert restored.read_text() == variable
        restored.write_text("it is the replica's own")
    await there.code.keep(second, ended=True)
    assert there.code.manifests() == {manifest}, "what has no new file is not published again"


async def test_another_organization_gets_nothing_of_it(tmp_path: Path) -> None:
    node = Node(tmp_path, "node")
    first = await node.replica("first")
    kernel(first, "TRITON_CACHE_DIR").write_text("acme's")
    await node.code.keep(first, ended=True)
    others = tmp_path / "others"
    await node.code.take("evil", key("evil", ["model"], "environment", "H100"), others)
    assert not list(others.iterdir())


async def test_of_an_organization_that_is_gone_nothing_is_kept(tmp_path: Path) -> None:
    node = Node(tmp_path, "node")
    first = await node.replica("first")
    kernel(first, "TRITON_CACHE_DIR").write_text("acme's")
    await node.code.keep(first, ended=True)
    (tmp_path / "node" / "code" / "used" / "older").write_text("written by an older version")
    node.code.forget({"acme"})
    assert len(node.code.manifests()) == 2
    node.code.forget({"rival"})
    assert node.code.manifests() == {"written by an older version"}


async def test_a_hostile_replica_has_nothing_published_but_its_own_files(tmp_path: Path) -> None:
    node = Node(tmp_path, "node")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "token").write_text("the platform's")
    first = await node.replica("first")
    good = kernel(first, "TRITON_CACHE_DIR")
    good.write_text("good")
    (first / "link").symlink_to(secret / "token")
    (first / "folder").symlink_to(secret)
    (first / "hard").hardlink_to(secret / "token")
    os.mkfifo(first / "pipe")
    await node.code.keep(first, ended=True)
    second = await node.replica("second")
    found = [path for path in second.rglob("*") if not path.is_dir()]
    assert found == [kernel(second, "TRITON_CACHE_DIR")]


async def test_more_than_a_replica_may_publish_stays_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "MOST_FILES", 1)
    node = Node(tmp_path, "node")
    first = await node.replica("first")
    for name in "ab":
        (first / name).write_text(name)
    await node.code.keep(first, ended=True)
    assert not node.code.manifests()


async def test_what_cannot_be_had_leaves_a_replica_with_an_empty_cache(tmp_path: Path) -> None:
    node = Node(tmp_path, "node")
    BlobStore(f"file://{tmp_path}/store").put_note(
        f"compiled/{key('acme', ['model'], 'environment', 'H100')}", {"manifest": "0" * 64}
    )
    assert not list((await node.replica("first")).iterdir())


async def test_replicas_compile_into_a_folder_that_the_next_ones_begin_with(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "")
    lend_own_environment(tmp_path, bento)
    runtime = runtime_of(tmp_path, Agent({"bento": bento}), Node(tmp_path, "node").code)

    async def prepared(name: str, **env: str) -> Path:
        folder, served = str(tmp_path / name), workload(env=env)
        command = await runtime.prepare(served, name, folder, Phases())
        return Path(command.env["TORCHINDUCTOR_CACHE_DIR"])

    first = await prepared("first")
    first.mkdir()
    (first / "kernel").write_text("compiled")
    await runtime.keep(str(tmp_path / "first"), ended=True)
    second = await prepared("second")
    assert second.is_relative_to(tmp_path / "second") and (second / "kernel").exists()
    theirs = await prepared("theirs", TORCHINDUCTOR_CACHE_DIR="/of/the/user")
    assert theirs == Path("/of/the/user")
