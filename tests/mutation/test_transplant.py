"""What a mutant has otherwise shows in the module that was loaded, and in what holds its names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.mutation.transplant import transplant

SOURCE = """
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

def plain(a, b=1): return a + b

@contextmanager
def managed():
    yield 1

class Thing:
    limit = 1
    def method(self): return 1
    def inherited(self): return super().__init__() or 1
    @property
    def asked(self): return 1
    @cached_property
    def once(self): return 1
    @staticmethod
    def static(): return 1

@dataclass(slots=True)
class Data:
    number: int = 1
    numbers: list = field(default_factory=lambda: [1])

class Pair(NamedTuple):
    number: int = 1
"""


@pytest.fixture
def loaded() -> Iterator[ModuleType]:
    module = ModuleType("to_be_mutated")
    module.__file__ = "to_be_mutated.py"
    sys.modules[module.__name__] = module
    exec(SOURCE, vars(module))
    yield module
    del sys.modules[module.__name__]


@pytest.mark.parametrize(
    ("expression", "before"),
    [
        ("plain(0)", 1),
        ("managed().__enter__()", 1),
        ("Thing.limit", 1),
        ("Thing().method()", 1),
        ("Thing().inherited()", 1),
        ("Thing().asked", 1),
        ("Thing().once", 1),
        ("Thing.static()", 1),
        ("Data().number", 1),
        ("Data().numbers", [1]),
        ("Pair().number", 1),
    ],
)
def test_each_kind_of_member_has_the_mutants_code(
    loaded: ModuleType, expression: str, before: object
) -> None:
    held = dict(vars(loaded))  # as `from module import name` does
    assert eval(expression, held) == before
    code = compile(SOURCE.replace("1", "2"), "to_be_mutated.py", "exec")
    transplant(code, loaded)
    assert eval(expression, held) == ([2] if isinstance(before, list) else 2)
