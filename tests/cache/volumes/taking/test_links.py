"""A tree's links stay inside, whichever way they go; one path outside is the interpreter's."""

from __future__ import annotations

import pytest

from hotplate.cache.errors import BadEnvironment
from hotplate.cache.volumes.taking.links import TreeLinks

PYTHON = "/usr/bin/python3.11"


@pytest.mark.parametrize(
    "links",
    [
        {},
        {"lib64": "lib"},
        {"bin/python": PYTHON, "bin/python3": "python", "bin/python3.11": "./python3"},
        {"a/b/c": "../../d/e"},
        {"a/b": ".."},
        {"a": "b", "b": "c"},
        {"a": "not/there"},
        {"d": "sub/deep", "x": "d/../../y"},
        {"a/slashes": "..//b/"},
        {"bin": "usr/bin", "usr/bin/python": PYTHON, "p": "bin/python"},
    ],
)
def test_a_link_may_lead_to_anything_inside(links: dict[str, str]) -> None:
    TreeLinks(links, PYTHON).check()


@pytest.mark.parametrize(
    ("links", "path"),
    [
        ({"a": "/etc/passwd"}, "a"),
        ({"a": "/"}, "a"),
        ({"a": "//usr/bin/python3.11"}, "a"),
        ({"a": f"{PYTHON}/../../../etc"}, "a"),
        ({"a": ".."}, "a"),
        ({"a/b": "../../etc/passwd"}, "a/b"),
        ({"a/b": "../x/../../y"}, "a/b"),
        ({"d": ".", "x": "d/../etc"}, "x"),
        ({"s/d": "..", "x": "s/d/../etc"}, "x"),
        ({"s/d": "..", "x": "s/d/s/d/s/d/../etc"}, "x"),
        ({"p": PYTHON, "x": "p/../../etc"}, "x"),
        ({"p": PYTHON, "x": "p/."}, "x"),
        ({"z": "/etc", "a": "z/passwd"}, "a"),
        ({"not/there": "b", "x": "not/here/../../../y"}, "x"),
    ],
)
def test_none_may_lead_out(links: dict[str, str], path: str) -> None:
    with pytest.raises(BadEnvironment, match=f"the link '{path}' leads to .* which is outside"):
        TreeLinks(links, PYTHON).check()


@pytest.mark.parametrize(
    "links",
    [
        {"a": "a"},
        {"a": "b", "b": "a"},
        {"a": "a/x"},
        {"a": "a/" * 500},
        {str(number): str(number + 1) for number in range(100)},
    ],
)
def test_none_leads_in_a_circle(links: dict[str, str]) -> None:
    with pytest.raises(BadEnvironment, match="leads through more than 40 others, or in a circle"):
        TreeLinks(links, PYTHON).check()


def test_links_that_take_too_long_to_follow_are_refused() -> None:
    links = {f"x{number}": "a/../" * 200 for number in range(100_000)}
    with pytest.raises(BadEnvironment, match="100000 links lead through more than 5000000 folders"):
        TreeLinks(links, PYTHON).check()


def test_ten_thousand_ordinary_links_are_followed() -> None:
    links = {f"a/b/c/{number}": f"../../x/{number}" for number in range(10_000)}
    TreeLinks(links, PYTHON).check()
