"""Names that are made of any text: good in a host name, and different for different texts."""

from __future__ import annotations

import re

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from hotplate.machine.slug import digested_slug, slug

PLAIN = st.from_regex("[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True)


def digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("hello-1-Hello", 42, "hello-1-hello"),
        ("my_service", 42, f"my-service-{digest('my_service')}"),
        ("-a-", 42, f"a-{digest('-a-')}"),
        ("a--b", 42, f"a-b-{digest('a--b')}"),
        ("a" * 42, 42, "a" * 42),
        ("a" * 43, 42, f"{'a' * 33}-{digest('a' * 43)}"),
        ("a" * 32 + "-" + "b" * 20, 42, f"{'a' * 32}-{digest('a' * 32 + '-' + 'b' * 20)}"),
        ("推論", 63, digest("推論")),
    ],
)
def test_a_slug_keeps_what_it_can(text: str, most: int, expected: str) -> None:
    assert slug(text, most) == expected


@given(st.text(), st.integers(min_value=9, max_value=63))
def test_a_slug_is_good_in_a_host_name(text: str, most: int) -> None:
    made = slug(text, most)
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= most


def test_what_was_changed_in_case_alone_has_no_digest_and_all_else_has_one() -> None:
    assert slug("Hello-1", 20) == slug("hello-1", 20) == "hello-1"
    assert slug("", 20) == digest("")
    assert slug("---", 20) == digest("---")
    assert slug("Hello_1", 20) == f"hello-1-{digest('Hello_1')}"


@given(PLAIN, st.integers(min_value=9, max_value=63))
def test_a_name_that_is_good_and_short_enough_stays(text: str, most: int) -> None:
    made = slug(text, most)
    assert (made == text) == (len(text) <= most)
    assert digested_slug(text, most).endswith(digest(text))
    assert len(digested_slug(text, most)) <= most


@given(st.text(), st.text())
def test_texts_that_differ_in_more_than_case_have_different_ones(one: str, other: str) -> None:
    if one.lower() != other.lower():
        assert slug(one, 63) != slug(other, 63)
