"""Imports run one way: no circle of files or folders, and none that runs back up a floor."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.structure.source_tree import (
    COMPONENTS,
    ROOT,
    Graph,
    among,
    between_children,
    circles,
    folders,
    imported_names,
    imports,
    module_of,
    named,
    sources,
)

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
LAYERED = [contract for contract in CONTRACTS if contract["type"] == "layers"]


@cache
def ours() -> Graph:
    """Without the tests. Read in a test: every worker of a test run imports this file."""
    return among([module_of(path) for path in sources(*COMPONENTS, "loadtests")], imports())


def test_no_files_import_one_another_in_a_circle() -> None:
    assert circles(ours()) == []


def test_no_folders_import_one_another_in_a_circle_at_any_level() -> None:
    found = [
        [f"{folder}.{child}" for child in circle]
        for folder in folders(ours())
        for circle in circles(between_children(folder, ours()))
    ]
    assert found == []


def _floors(contract: dict[str, object]) -> Iterator[list[list[str]]]:
    """The layers of a contract, top to bottom, as full names; once for each container."""
    layers, containers = contract["layers"], contract.get("containers", [""])
    assert isinstance(layers, list) and isinstance(containers, list)
    for container in containers:
        prefix = f"{container}." if container else ""
        yield [
            [prefix + name.strip(" ()") for name in layer.replace(":", "|").split("|")]
            for layer in layers
        ]


@pytest.mark.parametrize("contract", LAYERED, ids=lambda contract: str(contract["name"]))
def test_no_import_runs_back_up(contract: dict[str, object]) -> None:
    floor = {
        name: (height, name)
        for floors in _floors(contract)
        for height, names in enumerate(reversed(floors))
        for name in names
    }

    def place(module: str) -> tuple[int, str] | None:
        parts = module.split(".")
        return next(
            (floor[key] for n in range(len(parts), 0, -1) if (key := ".".join(parts[:n])) in floor),
            None,
        )

    wrong = []
    for module, others in ours().items():
        for other in others:
            here, there = place(module), place(other)
            if here and there and here[1] != there[1] and there[0] >= here[0]:
                wrong.append(f"{module} imports {other}")
    assert sorted(wrong) == []


def test_every_folder_whose_children_import_one_another_has_floors() -> None:
    described = {one for contract in CONTRACTS for one in _described(contract)}
    assert [
        folder
        for folder in folders(ours())
        if folder not in described and any(between_children(folder, ours()).values())
    ] == []


def _described(contract: dict[str, Any]) -> set[str]:
    """The folders of whose children a contract says which may import which."""
    if "containers" in contract:
        return set(contract["containers"])
    modules = contract["layers"] if contract["type"] == "layers" else contract.get("modules", [])
    return {module.strip().rpartition(".")[0] for one in modules for module in one.split("|")}


def test_every_contract_is_named_by_a_sentence() -> None:
    assert [c["name"] for c in CONTRACTS if len(c["name"].split()) < 4] == []


def test_the_product_imports_no_test_and_no_load_test() -> None:
    wrong = [
        f"{named(path)}:{line} imports {name}"
        for path in sources(*COMPONENTS)
        for name, line in imported_names(path)
        if name.split(".")[0] in ("tests", "loadtests")
    ]
    assert wrong == []


def imports_of(folder: str) -> Iterator[tuple[str, str, str]]:
    """Each import of this folder's files, as a line to show, and its two modules."""
    for module in map(module_of, sources(folder)):
        for other in imports()[module]:
            yield f"{module} imports {other}", module, other


def test_load_tests_import_of_the_tests_only_what_supports_them_and_the_test_cluster() -> None:
    supporting = ("tests.support.", "tests.cluster.")
    assert [
        line
        for line, _, other in imports_of("loadtests")
        if other.startswith("tests.")
        and (not other.startswith(supporting) or other.startswith("tests.cluster.test_"))
    ] == []


def test_only_the_tests_of_the_load_tests_import_them() -> None:
    assert [
        line
        for line, module, other in imports_of("tests")
        if other.startswith("loadtests.") and not module.startswith("tests.loadtests.")
    ] == []


def test_what_supports_the_tests_imports_none_of_them() -> None:
    assert [
        line
        for line, module, other in imports_of("tests")
        if module.startswith("tests.support.")
        and other.startswith("tests.")
        and not other.startswith("tests.support.")
    ] == []
