"""One meaning per word: a class name is unique in the product, or a word of the glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.structure.source_tree import COMPONENTS, ROOT, named, nodes, sources

_ROW = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


def glossary() -> set[str]:
    """The words of CONTRIBUTING's glossary, in lower case: `agent`, `stable window`."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("\n## Glossary\n", 1)[1].split("\n## ", 1)[0]
    cells = _ROW.findall(section)[1:]
    return {word.strip(" `").lower() for cell in cells for word in cell.split(",")}


def _words(name: str) -> str:
    """`StandbyPool` is "standby pool"."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)).lower()


def test_no_two_classes_have_one_name_that_the_glossary_does_not_explain() -> None:
    places = defaultdict(set)
    for path in sources(*COMPONENTS):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(named(path))
    explained = glossary()
    double = {
        name for name, files in places.items() if len(files) > 1 and _words(name) not in explained
    }
    assert double == set()


def test_a_word_stands_in_the_glossary_once() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Glossary\n", 1)[1]
    words = [w.strip() for cell in _ROW.findall(text.split("\n## ", 1)[0]) for w in cell.split(",")]
    assert sorted(words) == sorted(set(words))
