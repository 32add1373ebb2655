"""Gives a loaded module the faults of a mutant in place: what imported its names has them too."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

_CONSTANTS = (bool, int, float, str, bytes, tuple, frozenset)


def transplant(code: CodeType, module: ModuleType) -> None:
    """Runs a mutant's code aside, and takes over the code and the defaults of its functions and
    the constants of its classes."""
    mutated = {"__name__": module.__name__, "__file__": module.__file__}
    exec(code, mutated)
    _members(vars(module), mutated)


def _members(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name in old.keys() & new.keys():
        one, other = old[name], new[name]
        for function, mutated in zip(_functions(one), _functions(other), strict=False):
            if function.__module__ == mutated.__module__:
                _function(function, mutated)
        if isinstance(one, type) and one is not other:
            _members(vars(one), vars(other))
            _constants(one, other)


def _constants(old: type, new: type) -> None:
    for name, value in vars(new).items():
        if type(value) in _CONSTANTS and vars(old).get(name, value) != value:
            setattr(old, name, value)


def _function(old: FunctionType, new: FunctionType) -> None:
    old.__code__ = new.__code__
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    for name, cell, mutated in zip(
        new.__code__.co_freevars, old.__closure__ or (), new.__closure__ or (), strict=True
    ):
        if "_dflt_" in name:  # a dataclass's default
            cell.cell_contents = mutated.cell_contents


def _functions(value: object) -> Iterator[FunctionType]:
    """The functions behind a member: a property has several."""
    if isinstance(value, property):
        for part in (value.fget, value.fset, value.fdel):
            yield from _functions(part)
    elif isinstance(value, (staticmethod, classmethod)):
        yield from _functions(value.__func__)
    elif isinstance(value, functools.cached_property):
        yield from _functions(value.func)
    else:
        if isinstance(value, FunctionType):
            yield value
        yield from _functions(value.__wrapped__) if hasattr(value, "__wrapped__") else ()
