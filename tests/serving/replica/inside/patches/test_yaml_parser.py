"""BentoML reads bentos with the parser in C, and what it reads is the same."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import yaml

from hotplate.serving.replica.inside.forking.rehearsal import BENTO
from hotplate.serving.replica.inside.patches.yaml_parser import CompiledYaml, parse_in_c


@pytest.fixture(autouse=True)
def bento(monkeypatch: pytest.MonkeyPatch) -> Any:
    """BentoML's module that reads them, and does so as before in the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its libraries, about one another
        from bentoml._internal.bento import bento as module
    monkeypatch.setattr(module, "yaml", yaml)
    return module


def test_a_bento_is_read_as_before(bento: Any) -> None:
    before = bento.BaseBentoInfo.from_yaml_file(io.StringIO(BENTO))
    parse_in_c()
    parse_in_c()
    assert isinstance(bento.yaml, CompiledYaml)
    assert bento.BaseBentoInfo.from_yaml_file(io.StringIO(BENTO)) == before


def test_what_is_no_yaml_is_still_said_to_be_none(bento: Any) -> None:
    parse_in_c()
    with pytest.raises(yaml.YAMLError):
        bento.yaml.safe_load("a: [")
    assert yaml.safe_load("a: 1") == {"a": 1}


def test_without_libyaml_the_parser_stays(monkeypatch: pytest.MonkeyPatch, bento: Any) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    parse_in_c()
    assert bento.yaml is yaml
