"""What BentoML imports and no replica uses, left out: that saves a seventh of the import's time.

It is the arbiter of `bentoml serve` (circus, with tornado and pyzmq), the command line of httpx
(with pygments), and pyparsing, from which one file takes what is `typing.cast`. Python >= 3.9,
standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

UNUSED = {"bentoml._internal.utils.circus": "Server", "pyparsing": "cast"}
"""Modules, and the one name that BentoML takes from each at its import."""
COMMAND_LINE = "httpx._main"
"""httpx itself does without it where the packages that it needs are missing."""


class StandIn(ModuleType):
    """In place of an unused module. The name that BentoML takes loads the module when it is called,
    and any other name does so at once."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == UNUSED[self.__name__]:
            return partial(_call, self.__name__, name)
        return getattr(_load(self.__name__), name)


@contextmanager
def unused_left_out(used: Container[str] = ()) -> Iterator[None]:
    """Within the block, stand-ins are imported. What is imported already, or `used`, stays."""
    stand_ins: dict[str, Any] = {name: StandIn(name) for name in UNUSED}
    stand_ins[COMMAND_LINE] = None  # as if it were not there
    placed = {
        name: module
        for name, module in stand_ins.items()
        if name not in sys.modules and name not in used
    }
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name, module in placed.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]


def _call(module: str, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(_load(module), name)(*args, **kwargs)


def _load(module: str) -> ModuleType:
    if isinstance(sys.modules.get(module), StandIn):
        del sys.modules[module]
    return import_module(module)
