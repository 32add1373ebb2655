"""An archive is what the specification of OCI says, and the same whoever writes it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from tests.cluster.images.layers import write_layer
from tests.cluster.images.oci import Archive, Image


def image_of(folder: Path) -> Image:
    """Of two layers, the upper one with a program."""
    layers = []
    for name in ("lower", "upper"):
        root = folder / name
        root.mkdir(parents=True)
        (root / name).write_text(name)
        write_layer(root, folder / f"{name}.layer")
        layers.append(folder / f"{name}.layer")
    return Image("example/it:1", layers, ["/upper"], user="10001", environment={"LANG": "C.UTF-8"})


def test_everything_is_found_by_its_digest(tmp_path: Path) -> None:
    image = image_of(tmp_path)
    digest = image.write(tmp_path / "it.tar")
    with tarfile.open(tmp_path / "it.tar") as archive:
        content = {
            entry.name: taken.read()
            for entry in archive
            if (taken := archive.extractfile(entry)) is not None
        }
    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(content["index.json"])["manifests"]
    assert described["digest"] == digest
    assert described["annotations"]["io.containerd.image.name"] == "example/it:1"
    manifest = json.loads(content[_path(digest)])
    for part in (described, manifest["config"], *manifest["layers"]):
        blob = content[_path(part["digest"])]
        assert part["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
        assert part["size"] == len(blob)
    config = json.loads(content[_path(manifest["config"]["digest"])])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["config"]["Entrypoint"] == ["/upper"]
    assert config["config"]["User"] == "10001"
    assert config["config"]["Env"] == ["LANG=C.UTF-8"]
    assert [content[_path(layer["digest"])] for layer in manifest["layers"]] == [
        layer.read_bytes() for layer in image.layers
    ]


def test_the_same_files_are_the_same_image(tmp_path: Path) -> None:
    first = image_of(tmp_path / "first").write(tmp_path / "first.tar")
    second = image_of(tmp_path / "second").write(tmp_path / "second.tar")
    assert first == second
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


def test_what_was_written_from_the_same_is_left_alone(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "it.tar")
    image = image_of(tmp_path)
    assert image.ensure(archive)
    assert not image.ensure(archive)
    renamed = Image("example/it:2", image.layers)
    before = archive.digest
    assert renamed.ensure(archive)
    assert archive.digest == renamed.write(tmp_path / "again.tar")
    assert archive.place.read_bytes() == (tmp_path / "again.tar").read_bytes()
    archive.place.unlink()
    assert image.ensure(archive)
    assert archive.digest == before


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
