"""A folder holds one subject in about fifteen files, and the READMEs name every folder."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.structure import known
from tests.structure.source_tree import COMPONENTS, ROOT, package, sources

MOST_FILES = 15
_CODE = re.compile(r"`([^`\s]+)`")
_PYTHON_FILE = re.compile(r"`([\w./]+\.py)`")
# A table of folders begins so; each of its rows names folders and root files in its first cell.
_HEADER = "| where | what |"


def _root(name: str) -> Path:
    return package(name) if name in COMPONENTS else ROOT / name


def _rows(name: str) -> dict[str, str]:
    """What the README's tables of folders say, by each folder or file that they name.

    The first cell names it; a folder inside it may stand in the text: `web/` in the row of `api/`.
    """
    rows = {}
    inside = False
    for line in (ROOT / name / "README.md").read_text().splitlines():
        inside = line == _HEADER or (inside and line.startswith("|"))
        if inside and line != _HEADER:
            _, first, rest = line.split("|", 2)
            for place in _CODE.findall(first):
                rows[place] = rest
                if place.endswith("/"):
                    rows |= {place + one: rest for one in _CODE.findall(rest) if one[-1] == "/"}
    return rows


def _folders(name: str) -> set[str]:
    root = _root(name)
    return {
        f"{folder.relative_to(root).as_posix()}/"
        for path in sources(name)
        for folder in path.parents
        if root in folder.parents
    }


documented = pytest.mark.parametrize(
    "name", sorted({*COMPONENTS, "loadtests"} - known.READMES_BY_FILE)
)


@documented
def test_the_readme_names_every_folder_and_none_that_is_not_there(name: str) -> None:
    named = {path for path in _rows(name) if path.endswith("/")}
    assert _folders(name) - named == set()
    assert [path for path in named if not (_root(name) / path).is_dir()] == []


@documented
def test_every_file_that_the_readme_names_is_there(name: str) -> None:
    files = [path.as_posix() for path in sources(*COMPONENTS, "loadtests", "tests", "examples")]
    found = _PYTHON_FILE.findall((ROOT / name / "README.md").read_text())
    assert [n for n in found if not any(path.endswith("/" + n) for path in files)] == []


@pytest.mark.parametrize("name", sorted({*COMPONENTS, "loadtests"}))
def test_a_folder_of_more_than_fifteen_files_has_its_reason_in_the_readme(name: str) -> None:
    sizes = Counter(path.parent for path in sources(name))
    large = [folder for folder, size in sizes.items() if size > MOST_FILES]
    rows = _rows(name)
    wrong = [
        folder
        for folder in large
        if f"more than {MOST_FILES} files, because"
        not in rows.get(f"{folder.relative_to(_root(name)).as_posix()}/", "")
    ]
    assert wrong == []


def test_a_files_name_does_not_repeat_its_folders() -> None:
    repeated = {
        path.relative_to(ROOT).as_posix()
        for path in sources(*COMPONENTS, "loadtests")
        if {path.parent.name, path.parent.name.removesuffix("s")} & set(path.stem.split("_"))
    }
    assert repeated == set()
