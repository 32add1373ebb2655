"""The repository's own source files, their imports and their folders, read from the syntax trees.

Every import counts: under `if TYPE_CHECKING`, inside functions and in `try`. A dotted name in a
string does not.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
COMPONENTS = ("platform", "serving", "deploy", "cache", "autoscaler", "machine")

Graph = Mapping[str, set[str]]


def package(component: str) -> Path:
    """The folder that holds a component's modules: `cache/hotplate/cache`."""
    return ROOT / component / "hotplate" / component


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    """Every source file of these components or top folders (`loadtests`, `tests`)."""
    roots = [package(name) if name in COMPONENTS else ROOT / name for name in folders]
    return tuple(path for root in roots for path in sorted(root.rglob("*.py")))


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of the file's syntax tree; most tests look through it."""
    return tuple(ast.walk(syntax(path)))


def named(path: Path) -> str:
    """The file as a reader would write it, from the repository's root."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """`cache/hotplate/cache/swarm/bitmap.py` is `hotplate.cache.swarm.bitmap`."""
    parts = PurePosixPath(named(path)).with_suffix("").parts
    if parts[0] in COMPONENTS:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path) -> Iterator[tuple[str, int]]:
    """Each dotted name that a file imports, and its line.

    `from a.b import c` may mean the module a.b or a.b.c, so it yields both.
    """
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


@cache
def imports() -> Graph:
    """By module, the modules of the repository that it imports."""
    files = sources(*COMPONENTS, "loadtests", "tests")
    modules = {module_of(path) for path in files}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for path in files:
        own = module_of(path)
        found = {name for name, _ in imported_names(path)}
        graph[own] = (found & modules) - {own}
    return graph


def among(modules: Iterable[str], graph: Graph) -> Graph:
    """The part of a graph between these modules."""
    chosen = set(modules)
    return {name: graph[name] & chosen for name in chosen}


def between_children(folder: str, graph: Graph) -> Graph:
    """Which child of a folder (a file, or a subfolder with all below it) imports which other."""
    children: dict[str, set[str]] = defaultdict(set)
    for module, others in graph.items():
        if not module.startswith(folder + "."):
            continue
        child = _child(folder, module)
        children[child] |= {
            _child(folder, other) for other in others if other.startswith(folder + ".")
        } - {child}
    return children


def folders(graph: Graph) -> list[str]:
    """Every dotted folder that holds modules, at any depth."""
    found = set()
    for module in graph:
        parts = module.split(".")
        found |= {".".join(parts[:size]) for size in range(1, len(parts))}
    return sorted(found)


def circles(graph: Graph) -> list[tuple[str, ...]]:
    """The strongly connected groups of more than one node (Tarjan), each sorted."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(tuple(sorted(group)))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return sorted(found)


def _child(folder: str, module: str) -> str:
    return module[len(folder) + 1 :].split(".")[0]
