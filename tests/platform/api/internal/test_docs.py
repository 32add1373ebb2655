"""The OpenAPI document that a bento brings along, as a replica of it would tell it."""

from __future__ import annotations

import json

import pytest
import yaml

from hotplate.platform.api.internal.docs import DOCUMENT_BYTES, as_served

DOCUMENT = {"openapi": "3.0.2", "info": {"title": "Echo", "version": "None"}, "paths": {}}


def test_the_document_has_the_bentos_version_and_readme() -> None:
    said = json.loads(as_served(DOCUMENT, "v7", "# Read me"))
    assert said == {
        **DOCUMENT,
        "info": {"title": "Echo", "version": "v7", "description": "# Read me"},
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a [*a]\ninfo: {}", id="in itself"),
        pytest.param("info: {at: 2026-01-01}", id="a date"),
        pytest.param(
            "info: {}\na: &a [x,x,x,x,x,x,x,x]\n"
            + "\n".join(
                f"{new}: &{new} [{','.join([f'*{old}'] * 8)}]"
                for old, new in zip("abcdefgh", "bcdefghj", strict=True)
            ),
            id=f"more than {DOCUMENT_BYTES} bytes once written out",
        ),
    ],
)
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, RecursionError)):
        as_served(yaml.safe_load(text), "v1", "")
