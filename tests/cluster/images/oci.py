"""OCI archives: images as one tar file, which `ctr images import` and registry tools read.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What images call the machines that `platform.machine()` names."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An image as a file, and beside it a file that says which image and what it was made from."""

    place: Path

    @property
    def digest(self) -> str:
        """The image's, as registries call it."""
        return self._note.read_text().split()[0]

    @property
    def config_digest(self) -> str:
        """What nodes call an image that came from an archive: the digest of its config."""
        with tarfile.open(self.place) as archive:
            (described,) = _read(archive, "index.json")["manifests"]
            kind, digest = described["digest"].split(":")
            manifest = _read(archive, f"blobs/{kind}/{digest}")
        return str(manifest["config"]["digest"])

    def is_made_from(self, inputs: str) -> bool:
        """Whether the file is there and was written from these."""
        noted = self._note.read_text().split() if self._note.exists() else []
        return self.place.exists() and noted[1:] == [inputs]

    def note(self, digest: str, inputs: str) -> None:
        """Says which image it is now."""
        self._note.write_text(f"{digest} {inputs}\n")

    @property
    def _note(self) -> Path:
        return self.place.with_suffix(".digest")


@dataclass(frozen=True, slots=True)
class Image:
    """What an archive says of an image; `layers` are uncompressed tar files, the lowest first.

    A layer's file is named by its content, or by all that it is made from.
    """

    name: str
    layers: Sequence[Path]
    entrypoint: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    architecture: str = ARCHITECTURES.get(platform.machine(), platform.machine())

    def ensure(self, archive: Archive) -> bool:
        """Writes the archive unless it has been written from the same; whether it was."""
        said = {**asdict(self), "layers": [layer.name for layer in self.layers]}
        inputs = hashlib.sha256(_json(said)).hexdigest()
        if archive.is_made_from(inputs):
            return False
        archive.note(self.write(archive.place), inputs)
        return True

    def write(self, place: Path) -> str:
        """Writes the archive; returns the digest of the image, as registries call it."""
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f"{place.name}.{os.getpid()}")
        with tarfile.open(unfinished, "w") as archive:
            layers = [_add_file(archive, layer) for layer in self.layers]
            config = _add(archive, _json(self._config(layers)), _CONFIG)
            manifest = {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": config,
                "layers": layers,
            }
            described = _add(archive, _json(manifest), _MANIFEST)
            described["annotations"] = {"io.containerd.image.name": self.name}
            index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [described]}
            _put(archive, "index.json", _json(index))
            _put(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        unfinished.rename(place)
        return str(described["digest"])

    def _config(self, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "User": self.user,
                "Env": [f"{name}={value}" for name, value in self.environment.items()],
            },
            # A layer that is not compressed has one digest, whichever of the two is asked for.
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }


def _read(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    content = archive.extractfile(name)
    assert content is not None, "it is a file"
    said: dict[str, Any] = json.load(content)
    return said


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _add(archive: tarfile.TarFile, content: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    _put(archive, f"blobs/sha256/{digest}", content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add_file(archive: tarfile.TarFile, layer: Path) -> dict[str, Any]:
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        content.seek(0)
        entry = tarfile.TarInfo(f"blobs/sha256/{digest}")
        entry.size = layer.stat().st_size
        archive.addfile(entry, content)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": entry.size}


def _put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
