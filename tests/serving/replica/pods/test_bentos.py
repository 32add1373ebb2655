"""What is known of a bento whose files are in the blob store and nowhere on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from hotplate.cache.manifest import Manifest, ManifestEntry
from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica.bento import Bento
from hotplate.serving.replica.environments.spec import EnvironmentSpec, read_spec
from hotplate.serving.replica.errors import BentoUnusable, EnvironmentFailed, FilesUnavailable
from hotplate.serving.replica.pods.bentos import Bentos
from tests.support.cache.stores import store

DESCRIPTION = "spec: 2\nimage: {python_version: '3.11'}\n"
WITH_COMMAND = "spec: 2\nimage: {python_version: '3.11', post_commands: ['true']}\n"
FILES = {
    "bento.yaml": DESCRIPTION,
    "env/python/requirements.txt": "./wheels/own.whl\n",
    "src/wheels/own.whl": "a wheel",
    "src/service.py": "import bentoml",
}


def pushed(blobs: BlobStore, files: Mapping[str, str], mtime: float = 0.0) -> str:
    entries = []
    for path, content in files.items():
        with blobs.writer() as writer:
            writer.write(content.encode())
            entries.append(ManifestEntry(path, mtime=mtime, blob=writer.commit()))
    return blobs.put_manifest(Manifest(tuple(entries)))


def spec_of(bento: Bento) -> EnvironmentSpec:
    return read_spec(bento.folder, bento.image, {}, files=bento.files)


async def test_the_description_and_the_requirements_are_read_and_no_other_file(
    tmp_path: Path,
) -> None:
    with store("memory", tmp_path) as blobs:
        manifest = pushed(blobs, FILES)
        bento = await Bentos(blobs, tmp_path, Hubs()).get(manifest)
        there = sorted(path.name for path in bento.folder.rglob("*") if path.is_file())
        assert there == ["bento.yaml", "requirements.txt"]
        assert bento.image == {"python_version": "3.11"}
        assert spec_of(bento).requirements.read_text() == "./wheels/own.whl\n"


@pytest.mark.parametrize(
    ("description", "changed", "same"),
    [
        (DESCRIPTION, {"src/service.py": "import numpy"}, True),
        (DESCRIPTION, {"src/wheels/own.whl": "another wheel"}, False),
        (DESCRIPTION, {"src/wheels/other.whl": "a wheel"}, False),
        (WITH_COMMAND, {"src/service.py": "import numpy"}, False),
        (WITH_COMMAND, {}, True),
    ],
)
async def test_the_digest_follows_the_files_that_take_part_in_the_build_on_any_control_plane(
    description: str, changed: dict[str, str], same: bool, tmp_path: Path
) -> None:
    with store("memory", tmp_path) as blobs:
        files = {**FILES, "bento.yaml": description}
        first = pushed(blobs, files)
        second = pushed(blobs, {**files, **changed}, mtime=1.0)
        assert first != second
        one = await Bentos(blobs, tmp_path / "one", Hubs()).get(first)
        other = await Bentos(blobs, tmp_path / "other", Hubs()).get(second)
        assert (spec_of(one).digest == spec_of(other).digest) is same


async def test_a_bento_is_read_once_and_those_that_nobody_asks_for_go(tmp_path: Path) -> None:
    with store("memory", tmp_path) as blobs:
        bentos = Bentos(blobs, tmp_path, Hubs(), kept=2)
        names = [pushed(blobs, {**FILES, "src/service.py": str(n)}) for n in range(3)]
        first = await bentos.get(names[0])
        await bentos.get(names[1])
        assert await bentos.get(names[0]) is first
        await bentos.get(names[2])
        assert set(os.listdir(tmp_path)) == {names[0], names[2]}
        assert (await bentos.get(names[1])).folder.name in os.listdir(tmp_path)


async def test_one_that_is_not_there_or_no_bento_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with store("memory", tmp_path) as blobs:
        bentos = Bentos(blobs, tmp_path, Hubs())
        with pytest.raises(FilesUnavailable, match="no manifest") as unknown:
            await bentos.get("0" * 64)
        assert not unknown.value.retry
        with pytest.raises(BentoUnusable, match="has no bento"):
            await bentos.get(pushed(blobs, {"README.md": "no bento"}))


async def test_requirements_of_any_size_are_refused_and_not_read(tmp_path: Path) -> None:
    with store("memory", tmp_path) as blobs:
        files = {**FILES, "env/python/requirements.txt": "#" * (40 << 20)}
        bento = await Bentos(blobs, tmp_path, Hubs()).get(pushed(blobs, files))
        assert spec_size(bento) < 30 << 20
        with pytest.raises(EnvironmentFailed, match="more than 16 MiB"):
            spec_of(bento)


def spec_size(bento: Bento) -> int:
    return sum(path.stat().st_size for path in bento.folder.rglob("*") if path.is_file())
