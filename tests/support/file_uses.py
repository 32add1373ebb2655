"""Where Python source touches files: by methods of paths, by `os`, by `shutil` or by `open`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

METHODS = frozenset(
    (
        "chmod",
        "exists",
        "glob",
        "hardlink_to",
        "is_dir",
        "is_fifo",
        "is_file",
        "is_symlink",
        "iterdir",
        "lstat",
        "mkdir",
        "open",
        "read_bytes",
        "read_text",
        "readlink",
        "rename",
        "replace",
        "rglob",
        "rmdir",
        "stat",
        "symlink_to",
        "touch",
        "unlink",
        "walk",
        "write_bytes",
        "write_text",
    )
)
"""The methods of a path that touch files."""
FUNCTIONS = frozenset(
    (
        "chmod",
        "chown",
        "fwalk",
        "lchown",
        "link",
        "listdir",
        "lstat",
        "makedirs",
        "mkdir",
        "mkfifo",
        "open",
        "readlink",
        "remove",
        "removedirs",
        "rename",
        "renames",
        "replace",
        "rmdir",
        "scandir",
        "stat",
        "symlink",
        "truncate",
        "unlink",
        "utime",
        "walk",
    )
)
"""The functions of `os` that touch files; all of `shutil` does."""


class Use(NamedTuple):
    """A place in the source, and what it uses there, such as `.open` or `os.rename`."""

    function: str
    what: str
    line: int


def uses(source: str) -> list[Use]:
    """Where a module's source touches files directly."""
    return list(_uses(ast.parse(source), ()))


def _uses(node: ast.AST, within: tuple[str, ...]) -> Iterator[Use]:
    for child in ast.iter_child_nodes(node):
        inner = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*within, child.name)
        for what in _touched(child):
            yield Use(".".join(within) or "(the module)", what, getattr(child, "lineno", 0))
        if isinstance(child, ast.Call) and _is_text(child):
            for argument in child.args:
                yield from _uses(ast.Expr(argument), inner)
            yield from _uses(ast.Expr(child.func.value), inner)  # type: ignore[attr-defined]
        else:
            yield from _uses(child, inner)


def _is_text(call: ast.Call) -> bool:
    """`text.replace(old, new)`: a path is replaced by one argument."""
    replaces = isinstance(call.func, ast.Attribute) and call.func.attr == "replace"
    return replaces and len(call.args) != 1


def _touched(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module="os" | "shutil" as module, names=names):
            for one in names:
                if module == "shutil" or one.name in FUNCTIONS:
                    yield f"{module}.{one.name}"
        case ast.Import(names=names):
            for one in names:
                if one.name in ("os", "shutil", "pathlib") and one.asname:
                    yield f"{one.name} as {one.asname}"
        case ast.Name(id="open"):
            yield "open"
        case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in FUNCTIONS:
            yield f"os.{attr}"
        case ast.Attribute(value=ast.Name(id="shutil"), attr=attr):
            yield f"shutil.{attr}"
        case ast.Attribute(value=ast.Name(id="os" | "shutil" | "ForeignFolder")):
            return
        case ast.Attribute(value=ast.Attribute(attr="ForeignFolder")):
            return
        case ast.Attribute(value=ast.Attribute(value=ast.Attribute(attr="_store"))):
            return  # a part of the store: `self._store.uploads.open`
        case ast.Attribute(attr=attr) if attr in METHODS:
            yield f".{attr}"
