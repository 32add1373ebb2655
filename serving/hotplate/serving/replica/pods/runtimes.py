"""Which image an environment is built in and runs on: that of the bento's Python; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hotplate.serving.replica.errors import EnvironmentFailed

_VERSION = re.compile(r"\d+(\.\d+){0,2}")


@dataclass(frozen=True)
class RuntimeImage:
    """An image with one Python, and `uv`: both are on its PATH."""

    python: str
    """Its version: 3.11."""
    image: str

    @property
    def interpreter(self) -> str:
        """The name of its Python's program."""
        return f"python{'.'.join(self.python.split('.')[:2])}"


def runtimes_of(python_version: str, images: Sequence[RuntimeImage]) -> Sequence[RuntimeImage]:
    """Those with that Python, one at least; of a version that is given in full, what the images say
    of it counts. Raises `EnvironmentFailed`, which names those that there are."""
    wanted, found = python_version.strip(), []
    if _VERSION.fullmatch(wanted):
        found = [image for image in images if _is_of(wanted, image.python)]
    if not found:
        there = ", ".join(sorted({image.python for image in images})) or "none"
        raise EnvironmentFailed(
            f"This cluster has no runtime image with Python {wanted}; it has {there}. Build the "
            "bento with a python_version that is there, or add an image to the chart's runtimes."
        )
    return found


def _is_of(wanted: str, python: str) -> bool:
    pairs = zip(wanted.split("."), python.split("."), strict=False)
    return all(one == other for one, other in pairs)
