"""Bentos, models and wheels written by hand: what `bentoml build` leaves, without its seconds."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

STREAM = """
        @bentoml.api
        async def stream(self, cancelled: str):
            try:
                while True:
                    yield "piece"
                    await asyncio.sleep(0.01)
            finally:
                time.sleep(0.1)
                open(cancelled, "w").close()
"""
"""An API of a service that imports `asyncio` and `time`. It ends a moment after its caller left."""


def write_bento(
    folder: Path,
    source: str,
    *,
    requirements: str = "",
    services: Sequence[dict[str, Any]] = ({"name": "Echo"},),
    models: Sequence[str] = (),
    hub_models: Sequence[dict[str, Any]] = (),
    envs: Sequence[dict[str, str]] = (),
    image: dict[str, Any] | None = None,
) -> Path:
    """A bento of spec 2 whose module is `service.py` and whose first service is the entry."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "service.py").write_text(textwrap.dedent(source))
    (folder / "env" / "python").mkdir(parents=True)
    (folder / "env" / "python" / "requirements.txt").write_text(requirements)
    entry = services[0]["name"]
    created = "2026-01-01T00:00:00+00:00"
    infos = [{"tag": tag, "module": "", "creation_time": created} for tag in models]
    infos += hub_models
    about = {
        "service": f"service:{entry}",
        "name": entry.lower(),
        "version": "v1",
        "bentoml_version": "1.4.39",
        "creation_time": created,
        "labels": {},
        "models": infos,
        "entry_service": entry,
        "services": [{"service": "", "models": infos, "config": {}, **s} for s in services],
        "envs": list(envs),
        "schema": {},
        "args": {},
        "spec": 2,
        "image": {
            "base_image": "python:3.11-slim",
            "python_version": "3.11",
            "commands": [],
            "python_requirements": requirements,
            "post_commands": [],
            **(image or {}),
        },
    }
    (folder / "bento.yaml").write_text(yaml.safe_dump(about))
    return folder


def write_model(folder: Path, name: str, version: str) -> Path:
    """The files of a model of the BentoML store, with one file `weights.txt`."""
    folder.mkdir(parents=True)
    (folder / "weights.txt").write_text("42")
    about = {
        "name": name,
        "version": version,
        "module": "",
        "labels": {},
        "options": {},
        "metadata": {},
        "context": {"framework_name": "", "framework_versions": {}, "bentoml_version": "1.4.39"},
        "signatures": {},
        "api_version": "v1",
        "creation_time": "2026-01-01T00:00:00+00:00",
    }
    (folder / "model.yaml").write_text(yaml.safe_dump(about))
    return folder


def write_wheel(folder: Path, name: str, code: str = "", version: str = "1.0") -> str:
    """A wheel with one module; its path as requirements name it, relative to the bento's src."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, content)
    return f"./{folder.name}/{wheel.name}"
