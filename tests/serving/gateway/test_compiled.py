"""Where a build of the gateway is looked for, and when it is used."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hotplate.serving.gateway import compiled, compiler
from hotplate.serving.gateway.queue import discipline


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with the gateway's sources and no build of them; the path is put back afterwards."""
    sources = tmp_path / "sources"
    shutil.copytree(compiled.SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "SOURCES", sources)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_a_build_is_used_if_it_is_of_these_sources_and_nobody_said_no(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    monkeypatch.setattr(compiled, "MODULES", ["not_imported_yet"])
    compiled.use({})
    assert sys.path == before, "there is none"
    build = compiled.folder()
    build.mkdir(parents=True)
    for said in ("0", "false", "No", "off"):
        compiled.use({compiled.SETTING: said})
    assert sys.path == before
    monkeypatch.setattr(compiled, "MODULES", ["not_imported_yet", "queue.discipline"])
    assert discipline
    compiled.use({})
    assert sys.path == before, "it is too late"
    monkeypatch.setattr(compiled, "MODULES", ["not_imported_yet"])
    compiled.use({})
    assert sys.path == [str(build), *before]


def test_a_build_of_other_sources_is_not_found(environment: Path) -> None:
    build = compiled.folder()
    build.mkdir(parents=True)
    with (environment / "sources" / "queue" / "discipline.py").open("a") as source:
        source.write("\n")
    assert compiled.folder() != build
    (environment / "sources" / "queue" / "discipline.py").write_text("")
    assert not compiled.folder().is_dir()


def test_without_a_c_compiler_one_sentence_says_so_and_nothing_fails(
    environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiler.main([]) == 0
    said = capsys.readouterr().out
    assert said == ("The gateway runs as plain Python, not compiled: there is no C compiler.\n")
    assert not compiled.folder().is_dir()


def test_what_is_compiled_is_there() -> None:
    for module in compiled.MODULES:
        assert compiled.source(module).is_file()


def test_every_file_of_a_compiled_folder_is_compiled() -> None:
    for folder in compiled.FOLDERS:
        files = {path.stem for path in (compiled.SOURCES / folder).rglob("*.py")}
        assert files, folder
        listed = [*compiled.MODULES, *compiled.APART]
        assert files == {m.split(".")[1] for m in listed if m.startswith(f"{folder}.")}


def test_the_command_of_a_gateway_imports_nothing_compiled_before_it_asks_for_the_build() -> None:
    """Else it runs as plain Python, however well it is compiled, and only its log says so."""
    code = """
import sys
from hotplate.platform import cli
from hotplate.platform.commands.roles import gateway
from hotplate.serving.gateway import compiled
print(*(m for m in compiled.MODULES if f"{compiled.PACKAGE}.{m}" in sys.modules))
"""
    imported = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert imported.split() == []


def test_the_bases_of_compiled_classes_are_compiled() -> None:
    """A class with a base that is not would be as slow as that one."""
    for module in compiled.MODULES:
        tree = ast.parse(compiled.source(module).read_text())
        imported = {
            name.name: line.module or ""
            for line in ast.walk(tree)
            if isinstance(line, ast.ImportFrom)
            for name in line.names
        }
        for node in ast.walk(tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                origin = imported.get(ast.unparse(base), "")
                if origin.startswith(f"{compiled.PACKAGE}."):
                    below = origin.removeprefix(f"{compiled.PACKAGE}.")
                    assert below in compiled.MODULES, f"{module}: {ast.unparse(base)}"


def test_no_final_of_what_is_compiled_is_a_tuple_of_floats() -> None:
    """Whoever reads one of mypyc's gets a NameError, unless it is said to be a sequence."""
    for module in compiled.MODULES:
        tree = ast.parse(compiled.source(module).read_text())
        for line in tree.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Tuple):
                kinds = {type(getattr(each, "value", None)) for each in line.value.elts}
                final = ast.unparse(line.annotation) == "Final"
                assert not (final and kinds == {float}), f"{module}.py, line {line.lineno}"


def test_nothing_compiled_asks_for_the_attributes_of_an_object() -> None:
    """Objects of compiled classes have no `__dict__`, so `vars` of one is a TypeError."""
    for module in compiled.MODULES:
        tree = ast.parse(compiled.source(module).read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert "vars" not in names, module
        assert "__dict__" not in attributes, module
