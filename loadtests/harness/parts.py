"""A benchmark that is made of parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Row = TypeVar("Row")
Measures = Mapping[str, Callable[[Path, bool], Awaitable[Sequence[Row]]]]
"""Each part by its name: what measures it in a folder, quickly or not."""


async def measured(measures: Measures[Row], part: str, folder: Path, quick: bool) -> Sequence[Row]:
    """The part's rows, measured in a folder of its own below `folder`."""
    own = folder / part
    own.mkdir()
    return await measures[part](own, quick)
