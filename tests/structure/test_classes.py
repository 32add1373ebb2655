"""A class has 25 methods at most, and nobody but itself touches what begins with an underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.structure import known
from tests.structure.source_tree import COMPONENTS, named, nodes, sources

MOST_METHODS = 25
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What runs inside a replica replaces parts of BentoML and of its clients, by the names these have.
_PATCHES = "serving/hotplate/serving/replica/inside/"

_OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # public, in spite of their names


def test_no_class_has_more_than_25_methods() -> None:
    large = {
        node.name: methods
        for path in sources(*COMPONENTS, "loadtests", "tests")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        and (methods := sum(isinstance(child, _FUNCTIONS) for child in node.body)) > MOST_METHODS
    }
    assert set(large) - known.LARGE_CLASSES == set()


def test_no_product_code_reaches_into_another_objects_underscore() -> None:
    assert _reaching("product") == set()


def test_no_test_reaches_into_another_objects_underscore() -> None:
    assert _reaching("tests") - known.TESTS_REACHING_IN == set()


def _reaching(where: str) -> set[str]:
    files = sources(*COMPONENTS) if where == "product" else sources("loadtests", "tests")
    return {
        f"{named(path)}: {found}"
        for path in files
        if not named(path).startswith(_PATCHES)
        for found in _reached_from(path)
    }


def _reached_from(path: Path) -> Iterator[str]:
    """Each underscored name of the product that a file uses and does not declare itself."""
    private = _declared_in_product() - _declared(path)
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and not _is_own(node.value):
            name = node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hotplate"):
            yield from (alias.name for alias in node.names if _is_private(alias.name))
            continue
        elif isinstance(node, ast.Call) and _called(node.func) in ("setattr", "getattr"):
            yield from (
                private
                & {  # also of monkeypatch: "module.Class._name", or an object and "_name"
                    text.value.rsplit(".", 1)[-1]
                    for text in node.args
                    if isinstance(text, ast.Constant) and isinstance(text.value, str)
                }
            )
            continue
        else:
            continue
        if name in private:
            yield name


def _called(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and len(name) > 1


@cache
def _declared_in_product() -> frozenset[str]:
    declared = frozenset().union(*(_declared(path) for path in sources(*COMPONENTS)))
    return declared - _OF_NAMED_TUPLES


@cache
def _declared(path: Path) -> frozenset[str]:
    """The underscored functions, classes, variables and attributes that a file makes."""
    names = set()
    for node in nodes(path):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if _is_own(node.value):
                names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(filter(_is_private, names))
