"""A source file with one small fault at a time: what tests should notice.

A mutant changes one operator, comparison, number or statement. Not changed are the numbers of
module constants (they are tuned by measuring, and any neighbour works as well), annotations,
docstrings, `__slots__` and what only says something: messages, f-strings and raised errors.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    line: int
    change: str
    """`a < b → a <= b`"""
    module: ast.Module
    run: range | None
    """The lines one of which is run whenever the change is; None if it is on import."""


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    count = sum(1 for _ in _places(tree))
    for number in range(count):
        mutated = copy.deepcopy(tree)
        place, way, run = list(_places(mutated))[number]
        before = _shown(place)
        line = place.lineno
        after = _change(mutated, place, way)
        yield Mutant(line, f"{before} → {after}", ast.fix_missing_locations(mutated), run)


Place = ast.Compare | ast.BinOp | ast.AugAssign | ast.BoolOp | ast.UnaryOp | ast.Constant | ast.Call
_Statement = ast.Expr | ast.Break | ast.Continue
_Found = tuple[Place | _Statement, int, range | None]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _places(tree: ast.Module) -> Iterator[_Found]:
    """Each node that can be changed; where it can be in several ways, each of them."""
    for statement in tree.body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            yield from _inside(statement, None)


def _inside(node: ast.AST, run: range | None) -> Iterator[_Found]:
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert)) or _is_slots(node):
        return
    if isinstance(node, ast.stmt) and run is not None:
        run = _header(node)
    if isinstance(node, ast.Compare):
        yield from ((node, index, run) for index in range(len(node.ops)))
    elif (
        (isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS)
        or isinstance(node, ast.BoolOp)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)))
        or (isinstance(node, ast.Constant) and isinstance(node.value, (int, float)))
        or (isinstance(node, ast.Call) and _name(node.func) in _CALLS)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or isinstance(node, (ast.Break, ast.Continue))
    ):
        yield node, 0, run
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        inner = range(0) if isinstance(node, _FUNCTIONS) and name == "body" else run
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _inside(child, inner)


def _header(node: ast.stmt) -> range:
    """A statement's lines, without those of the statements within it."""
    within = [each.lineno for each in ast.walk(node) if isinstance(each, ast.stmt)]
    end = min(within[1:], default=(node.end_lineno or node.lineno) + 1)
    return range(node.lineno, max(end, node.lineno + 1))


def _is_slots(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(_name(one) == "__slots__" for one in node.targets)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _change(tree: ast.Module, place: Place | _Statement, way: int) -> str:
    """Makes the fault, and says what stands there then."""
    if isinstance(place, ast.Compare):
        place.ops[way] = _COMPARISONS[type(place.ops[way])]()
    elif isinstance(place, (ast.BinOp, ast.AugAssign)):
        place.op = _OPERATORS[type(place.op)]()
    elif isinstance(place, ast.BoolOp):
        place.op = ast.Or() if isinstance(place.op, ast.And) else ast.And()
    elif isinstance(place, ast.Constant):
        value = place.value
        assert isinstance(value, (int, float))
        place.value = not value if isinstance(value, bool) else value + 1
    elif isinstance(place, ast.Call):
        assert isinstance(place.func, ast.Name)
        place.func.id = _CALLS[place.func.id]
    elif isinstance(place, ast.UnaryOp):
        return _replace(tree, place, place.operand)
    elif isinstance(place, (ast.Break, ast.Continue)):
        return _replace(tree, place, ast.Continue() if isinstance(place, ast.Break) else ast.Pass())
    else:
        return _replace(tree, place, ast.Pass())
    return _shown(place)


def _replace(tree: ast.Module, old: ast.AST, new: ast.expr | ast.stmt) -> str:
    ast.copy_location(new, old)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is old for item in value):
                value[:] = [new if item is old else item for item in value]
    return _shown(new)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}…"
