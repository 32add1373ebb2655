"""The page that explains names places that are there, and every folder of the product."""

from __future__ import annotations

import re

import pytest

from tests.structure.source_tree import COMPONENTS, ROOT, package, sources

PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w./]+(?:/|\.py))`", PAGE)))


@pytest.mark.parametrize("path", NAMED)
def test_every_place_on_the_page_is_there(path: str) -> None:
    component, _, inner = path.partition("/")
    place = package(component) / inner if component in COMPONENTS else ROOT / path
    assert place.exists()


def test_the_page_names_every_folder_of_the_product_or_the_one_above_it() -> None:
    folders = {
        f"{name}/{path.parent.relative_to(package(name)).as_posix()}/".replace("/./", "/")
        for name in COMPONENTS
        for path in sources(name)
    }
    assert {one for one in folders if not any(one.startswith(named) for named in NAMED)} == set()


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/architecture.md)" in (ROOT / "README.md").read_text()
