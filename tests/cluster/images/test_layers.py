"""A layer is made once, and says nothing of the machine that it was made on."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tests.cluster.images.layers import Layer, unpacked


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(root: Path) -> None:
    (root / "folder").mkdir(mode=0o700)
    (root / "folder/program").write_text("text")
    (root / "folder/program").chmod(0o755)
    os.utime(root / "folder/program")
    (root / "link").symlink_to("folder/program")


def test_it_is_made_again_when_what_it_is_made_from_changes() -> None:
    layer = Layer("one", ["a"], fill)
    assert layer.ensure()
    assert not layer.ensure()
    assert Layer("one", ["b"], fill).ensure()


def test_its_files_have_one_owner_and_one_time() -> None:
    layer = Layer("one", [], fill)
    layer.ensure()
    with tarfile.open(layer.place) as content:
        entries = list(content)
    assert [entry.name for entry in entries] == ["folder", "folder/program", "link"]
    assert [oct(entry.mode) for entry in entries[:2]] == ["0o700", "0o755"]
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {
        (0, 0, "", "")
    }
    assert len({entry.mtime for entry in entries}) == 1
    with unpacked(layer) as root:
        assert (root / "link").read_text() == "text"


def test_a_fault_leaves_nothing(cache: Path) -> None:
    def fail(root: Path) -> None:
        fill(root)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Layer("one", [], fail).ensure()
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_the_oldest_go() -> None:
    layers = [Layer("one", [str(number)], fill) for number in range(7)]
    for number, layer in enumerate(layers):
        layer.ensure()
        os.utime(layer.place, (number, number))
    assert [layer.place.exists() for layer in layers] == [False] * 2 + [True] * 5
