from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotplate.cache.catalog.tree_folder import TreeFolder
from hotplate.cache.copies.landing import land
from hotplate.cache.manifest import Manifest, ManifestEntry
from hotplate.cache.tiers.disk import DiskTier
from tests.support.cache.fakes import blob_of

CONFIG, WEIGHTS, SCRIPT = b"{}", b"weights", b"#!/bin/sh\n"
DIGESTS = {
    "config.json": blob_of(CONFIG).digest,
    "sub/run.sh": blob_of(SCRIPT).digest,
    "sub/model.safetensors": blob_of(WEIGHTS).digest,
}
MANIFEST = Manifest(
    (
        ManifestEntry("config.json", 0o644, 1e9, blob_of(CONFIG)),
        ManifestEntry("sub", 0o755, 1.1e9),
        ManifestEntry("sub/run.sh", 0o755, 1.2e9, blob_of(SCRIPT)),
        ManifestEntry("sub/model.safetensors", 0o644, 1.3e9, blob_of(WEIGHTS)),
        ManifestEntry("empty", 0o755, 1.4e9),
    )
)
WHOLE = {DIGESTS["config.json"], DIGESTS["sub/run.sh"]}


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    tier = DiskTier(tmp_path / "disk")
    for content in (CONFIG, WEIGHTS, SCRIPT):
        blob = blob_of(content)
        landing = land(tier, tier.reserve(len(content)), blob.digest, blob)
        landing.put(0, memoryview(content))
        landing.keep(blob_of(content).digest)
    return tier


@pytest.fixture
def tree(tmp_path: Path, disk: DiskTier) -> Iterator[TreeFolder]:
    folder = TreeFolder(tmp_path / "trees", MANIFEST.digest, MANIFEST, disk)
    yield folder
    assert [path.name for path in (tmp_path / "trees").iterdir()] == [MANIFEST.digest]


def test_a_tree_has_its_files_folders_modes_and_times(tree: TreeFolder) -> None:
    assert tree.build(DIGESTS, WHOLE) == {"config.json", "sub/run.sh"}
    assert (tree.root / "config.json").read_bytes() == CONFIG
    assert (tree.root / "sub/run.sh").stat().st_mode & 0o777 == 0o555
    assert (tree.root / "empty").is_dir()
    for entry in (MANIFEST.entries[index] for index in (0, 1, 2, 4)):
        assert (tree.root / entry.path).stat().st_mtime == entry.mtime


def test_a_streamed_file_is_seen_cannot_be_opened_and_is_then_whole(tree: TreeFolder) -> None:
    tree.build(DIGESTS, WHOLE)
    path = tree.root / "sub/model.safetensors"
    assert path.is_file() and tree.absent == set(), "libraries look before they open"
    with pytest.raises(PermissionError):
        path.read_bytes()
    tree.link(MANIFEST.entries[3], DIGESTS["sub/model.safetensors"])
    assert (path.read_bytes(), tree.absent) == (WEIGHTS, set())
    assert (tree.root / "sub").stat().st_mtime == 1.1e9


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be both")
def test_an_ordinary_user_sees_the_file_and_may_not_open_it(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    reached = os.open(tmp_path, os.O_RDONLY)  # what is above it may be root's alone

    def place() -> None:
        os.fchdir(reached)
        os.setresuid(65534, 65534, 65534)
        target = Path("model.safetensors")
        assert DiskTier(Path("disk")).place_closed(target, 1e9) and target.is_file()
        with pytest.raises(PermissionError):
            target.open("rb")

    assert in_a_fork(place) == 0
    os.close(reached)
    assert (tmp_path / "model.safetensors").stat().st_mtime == 1e9


@pytest.mark.skipif(os.getuid() != 0, reason="nobody else may open any file")
@pytest.mark.parametrize("stand_in", ["/nowhere", "/proc/self/cmdline"])
def test_a_streamed_file_is_not_there_where_root_could_open_what_stands_in_for_it(
    tree: TreeFolder, monkeypatch: pytest.MonkeyPatch, stand_in: str
) -> None:
    monkeypatch.setattr("hotplate.cache.tiers.disk.CLOSED_TO_ROOT", stand_in)
    tree.build(DIGESTS, WHOLE)
    path = tree.root / "sub/model.safetensors"
    assert tree.absent == {"sub/model.safetensors"} and not os.path.lexists(path)
    tree.link(MANIFEST.entries[3], DIGESTS["sub/model.safetensors"])
    assert (path.read_bytes(), tree.absent) == (WEIGHTS, set())


def in_a_fork(work: Callable[[], None]) -> int:
    """The exit status of a process that does it."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def test_a_streamed_file_is_a_link_into_the_view_where_there_is_one(
    tmp_path: Path, disk: DiskTier
) -> None:
    view = tmp_path / "view"
    tree = TreeFolder(tmp_path / "trees", MANIFEST.digest, MANIFEST, disk, view)
    for _ in range(2):
        tree.build(DIGESTS, WHOLE)
        path = tree.root / "sub/model.safetensors"
        assert (os.readlink(path), tree.absent) == (f"{view}/sub/model.safetensors", set())
    tree.link(MANIFEST.entries[3], DIGESTS["sub/model.safetensors"])
    assert path.read_bytes() == WEIGHTS and not path.is_symlink()


def test_building_again_changes_nothing(tree: TreeFolder) -> None:
    tree.build(DIGESTS, WHOLE)
    before = {path: os.stat(path).st_ino for path in tree.root.rglob("*")}
    tree.build(DIGESTS, WHOLE)
    after = {path: os.stat(path).st_ino for path in tree.root.rglob("*")}
    stand_in = tree.root / "sub/model.safetensors"
    assert (before.pop(stand_in, None) is None) == (after.pop(stand_in, None) is None)
    assert before == after


def test_building_repairs_what_an_earlier_run_left(tree: TreeFolder) -> None:
    half_built = tree.root.with_name(f".building-{tree.root.name}")
    (half_built / "leftover").mkdir(parents=True)
    tree.build(DIGESTS, WHOLE)
    (tree.root / "config.json").unlink()
    (tree.root / "config.json").write_text("damaged")
    tree.build(DIGESTS, WHOLE)
    assert (tree.root / "config.json").read_bytes() == CONFIG
    assert not (tree.root / "leftover").exists()


def test_what_is_not_verified_yet_cannot_be_opened_again(tree: TreeFolder) -> None:
    tree.build(DIGESTS, set(DIGESTS.values()))
    assert (tree.root / "sub/model.safetensors").read_bytes() == WEIGHTS
    tree.build(DIGESTS, WHOLE)
    assert not os.access(tree.root / "sub/model.safetensors", os.R_OK)


def test_links_and_files_that_share_a_blob_are_made(tmp_path: Path, disk: DiskTier) -> None:
    pack = blob_of(SCRIPT)
    manifest = Manifest(
        (
            ManifestEntry("bin/sh", 0o755, 1e9, pack, part=(2, 7)),
            ManifestEntry("bin/none", 0o644, 1e9, pack, part=(9, 0)),
            ManifestEntry("bin/link", link="sh"),
            ManifestEntry("out", link="/nowhere"),
        )
    )
    folder = TreeFolder(tmp_path / "trees", manifest.digest, manifest, disk)
    for _ in range(2):
        linked = folder.build({"bin/sh": pack.digest, "bin/none": pack.digest}, {pack.digest})
        assert linked == {"bin/sh", "bin/none"}
        assert (folder.root / "bin/link").read_bytes() == SCRIPT[2:9]
        assert (folder.root / "bin/sh").stat().st_mode & 0o777 == 0o555
        assert (folder.root / "bin/none").read_bytes() == b""
        assert os.readlink(folder.root / "out") == "/nowhere"
    assert [path.name for path in (tmp_path / "trees").iterdir()] == [manifest.digest]
