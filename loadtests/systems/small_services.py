"""Small services that the trials deploy; they need nothing but BentoML, so one environment does."""

from __future__ import annotations

from pathlib import Path

_HEAD = """import asyncio
import time

import bentoml


@bentoml.service(
    image=bentoml.images.Image(python_version="3.11"), traffic={{"concurrency": {slots}}}
)
"""


def project(folder: Path, service: str, slots: int = 4) -> Path:
    """A new folder with a service, whose class is given."""
    folder.mkdir()
    (folder / "service.py").write_text(_HEAD.format(slots=slots) + service)
    return folder
