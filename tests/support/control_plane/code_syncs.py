"""What `bentoml code` sends of a folder and its saves, and what must be there after a death."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from hotplate.platform.spec.code_files import READY
from tests.support.control_plane.cloud import MANIFEST, versions
from tests.support.control_plane.mortal_plane import Plane

CODE = MANIFEST | {"version": "v5", "dev": True, "image": {"python_version": "3.11"}}


async def code_space(plane: Plane) -> None:
    await plane.cloud.register("bento", "echo", "v5", CODE)
    done = {"status": "success", "reason": "bento for development"}
    await plane.cloud.call("PATCH", f"{versions('bento', 'echo')}/v5/finish_upload", done)
    body = {"name": "echo", "bento": "echo:v5", "dev": True, "services": {"Echo": {}}}
    await plane.cloud.call("POST", "/api/v2/deployments", body)


def sent(**texts: str) -> dict[str, Any]:
    """The body of an upload of files, whose names end with `.py`."""
    encoded = {f"{name}.py": b64encode(text.encode()).decode() for name, text in texts.items()}
    return files_body(encoded)


def files_body(encoded: Mapping[str, str]) -> dict[str, Any]:
    return {"files": [{"path": p, "b64_encoded_content": c} for p, c in encoded.items()]}


SYNCS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("POST", sent(service="x = 1", old="y"), {"service.py": "x = 1", "old.py": "y"}),
    ("POST", files_body({READY: ""}), {READY: ""}),
    ("POST", sent(service="x = 2", new="z"), {"service.py": "x = 2", "new.py": "z"}),
    ("DELETE", {"paths": ["old.py"]}, {}),
]
"""What `bentoml code` sends for a new folder and two saves, and what it has put then."""


def after(syncs: int) -> dict[str, str]:
    """The files of the code space after the first of these."""
    files: dict[str, str] = {}
    for _, body, new in SYNCS[:syncs]:
        files = {p: text for p, text in (files | new).items() if p not in body.get("paths", ())}
    return files


async def sync(plane: Plane) -> None:
    """What was acknowledged is there after a death, and of what was not all or nothing."""
    done = sum(each.startswith("sync") for each in plane.promised)
    assert await plane.code_files() in (after(done), after(done + 1))
    for number, (method, body, _) in list(enumerate(SYNCS))[done:]:
        await plane.cloud.call(method, "/api/v2/deployments/echo/files", body)
        plane.promised.add(f"sync {number}")


async def synced(plane: Plane) -> bool:
    """Whether what runs are the files as they are."""
    return await plane.serves("v5") and await plane.runs(after(len(SYNCS)))
