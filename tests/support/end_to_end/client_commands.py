"""The commands of the installed bentoml client, and those that the scenarios type; without a run.

A scenario types a command by `laptop.types("deployment list -o json")`: what it types is read from
its source, so that nobody keeps a list of it.
"""

from __future__ import annotations

import ast
import shlex
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

EVERYWHERE = frozenset({"--context", "--do-not-track", "--debug", "--verbose", "--quiet", "--help"})
"""Options of every command, which change nothing of what one asks the server, or choose which."""

Option = frozenset[str]
"""All ways to write one."""


def client_commands() -> dict[str, set[Option]]:
    """The options of each command that is not hidden, by its words: `deployment list`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client's own
        from bentoml_cli.cli import create_bentoml_cli

    root = create_bentoml_cli()
    return dict(_leaves(root, click.Context(root), ()))


def _leaves(
    command: click.Command, context: click.Context, words: tuple[str, ...]
) -> Iterator[tuple[str, set[Option]]]:
    if not isinstance(command, click.Group):
        shown = [each for each in command.params if isinstance(each, click.Option)]
        written = {frozenset(o.opts) | frozenset(o.secondary_opts) for o in shown if not o.hidden}
        yield " ".join(words), {option for option in written if not option & EVERYWHERE}
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _leaves(below, click.Context(below, parent=context), (*words, name))


def typed_commands(folder: Path, commands: Mapping[str, set[Option]]) -> dict[str, set[str]]:
    """The options with which the tests in a folder type each command."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.glob("test_*.py")):
        for line in _lines(ast.parse(file.read_text())):
            words = shlex.split(line)
            for length in range(len(words), 0, -1):
                if (command := " ".join(words[:length])) in commands:
                    found[command] |= {word for word in words[length:] if word.startswith("-")}
                    break
    return dict(found)


def _lines(tree: ast.AST) -> Iterator[str]:
    """What is given to each call of `types` or `coding`; `x` stands for what only a run knows."""
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
            assigned = _assigned(function)
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and _name(call.func) in ("types", "coding"):
                    yield from (_text(each, assigned) for each in call.args)


def _assigned(function: ast.AST) -> list[tuple[str, ast.expr]]:
    """Names and the values that they are given, from the last one to the first."""
    found = [
        (target.id, node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return sorted(found, key=lambda each: each[1].lineno, reverse=True)


def _text(node: ast.expr, assigned: list[tuple[str, ast.expr]]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, assigned) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, assigned)
    if isinstance(node, ast.Name):
        before = (v for name, v in assigned if name == node.id and v.lineno < node.lineno)
        value = next(before, None)
        return "x" if value is None else _text(value, assigned)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _text(node.func.value, assigned) if node.func.attr == "replace" else "x"
    return "x"


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
