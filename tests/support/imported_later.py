"""Modules that take seconds to import and that few tests need: every worker imports every test."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks whatever a test file has for such
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def imported_later(name: str) -> Any:
    """What behaves as the module of that name, and imports it when it is first used."""
    return _Later(name)
