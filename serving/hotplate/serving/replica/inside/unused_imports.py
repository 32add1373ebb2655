"""What BentoML imports and no replica uses, left out: that saves a fifth of the import's time.

It is the arbiter of `bentoml serve` (circus, with tornado and pyzmq), the client of BentoCloud
(with rich), the command line of httpx (with pygments), and pyparsing, from which one file takes
what is `typing.cast`. Python >= 3.9, standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

UNUSED = {
    "bentoml._internal.cloud.client": ("RestApiClient",),
    "bentoml._internal.cloud.config": ("CloudClientConfig",),
    "bentoml._internal.cloud.schemas.modelschemas": ("LabelItemSchema", "ModelManifestSchema"),
    "bentoml._internal.cloud.schemas.schemasv1": ("CreateModelSchema",),
    "bentoml._internal.utils.circus": ("Server",),
    "pyparsing": ("cast",),
}
"""Modules, and the names that BentoML takes from them at its import and uses in functions."""
COMMAND_LINE = "httpx._main"
"""httpx itself does without it where the packages that it needs are missing."""


class StandIn(ModuleType):
    """In place of an unused module. The names that BentoML takes load the module when they are
    used, and any other name does so at once."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in UNUSED[self.__name__]:
            return Later(self.__name__, name)
        return getattr(_load(self.__name__), name)


class Later:
    """In place of a class or function of an unused module."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(_load(self._module), self._name)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(_load(self._module), self._name), name)


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


def _load(name: str) -> ModuleType:
    """The module itself, which must not find stand-ins of those that it imports."""
    for unused in UNUSED:
        if isinstance(sys.modules.get(unused), StandIn):
            del sys.modules[unused]
    return import_module(name)
