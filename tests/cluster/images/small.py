"""Images of one program and nothing else: a pod's first container, and a server for tests."""

from __future__ import annotations

import tarfile

from tests.cluster.images.oci import Archive, Image
from tests.cluster.layout import Layout

SMALL_IMAGES = ("pause", "echo")
_NOBODY = "65535"


def image_name(program: str) -> str:
    """As pods name it; it is never pulled."""
    return f"hotplate.test/{program}:1"


def ensure_small(layout: Layout, program: str) -> Archive:
    """The archive of the image of a program in `.cluster/bin`, written if that has changed."""
    built = (layout.binaries / program).resolve()
    layer = layout.images / f"{program}-{built.parent.name}.layer"
    if not layer.exists():
        layout.images.mkdir(parents=True, exist_ok=True)
        with tarfile.open(layer, "w") as content:
            content.add(built, program, filter=_as_anybody)
    archive = Archive(layout.images / f"{program}.tar")
    Image(image_name(program), [layer], [f"/{program}"], user=_NOBODY).ensure(archive)
    return archive


def _as_anybody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what differs from machine to machine, so that the same program is the same image."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry
