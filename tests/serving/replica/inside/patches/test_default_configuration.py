"""BentoML's default configuration is read once, and each use of it has its own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from bentoml._internal.configuration import containers, v2
from schema import Schema, SchemaError

from hotplate.serving.replica.inside.patches.default_configuration import (
    CheckedOnce,
    keep_defaults,
)

STOCK = v2.SCHEMA


@pytest.fixture(autouse=True)
def _undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v2, "SCHEMA", STOCK)
    monkeypatch.setattr(containers, "get_default_config", containers.get_default_config)


def with_service(**settings: Any) -> dict[str, Any]:
    """The defaults, and a service that has them too, but for these."""
    config: dict[str, Any] = containers.get_default_config(version=2)
    defaults = deepcopy(config["services"])
    config["services"]["Echo"] = {**defaults, **settings}
    return config


def test_it_is_read_once_and_each_time_another_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    stock, read = containers.get_default_config, []

    def counted(version: int) -> dict[str, object]:
        read.append(version)
        config: dict[str, object] = stock(version=version)
        return config

    monkeypatch.setattr(containers, "get_default_config", counted)
    keep_defaults()
    first = containers.get_default_config(version=2)
    first["services"]["Echo"] = {"threads": 2}
    second = containers.get_default_config(version=2)
    assert second == stock(version=2) != first
    assert containers.get_default_config(version=1) == stock(version=1)
    assert read == [2, 1]


def test_of_a_service_that_has_defaults_only_what_it_changes_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_defaults()
    config = with_service(threads=3)
    checked: list[Any] = []
    stock = Schema.validate

    def noted(self: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        checked.append(data)
        return stock(self, data, *args, **kwargs)

    monkeypatch.setattr(Schema, "validate", noted)
    v2.SCHEMA.validate(config)
    assert {"threads": 3} in checked
    assert config["services"]["http"] not in checked
    checked.clear()
    v2.SCHEMA.validate(config)
    assert {"threads": 3} not in checked


@pytest.mark.parametrize(
    "settings",
    [
        {"threads": 0},
        {"traffic": {"timeout": "long"}},
        {"http": {"port": -1}},
        {"ssl": {}},
        {"resources": 4},
    ],
)
@pytest.mark.parametrize("of_all", [True, False])
def test_what_is_wrong_is_refused_in_the_same_words(settings: dict[str, Any], of_all: bool) -> None:
    keep_defaults()
    config = with_service(**({} if of_all else settings))
    config["services"].update(settings if of_all else {})
    for _ in range(2):
        with pytest.raises(SchemaError) as refused:
            v2.SCHEMA.validate(config)
        with pytest.raises(SchemaError) as expected:
            STOCK.validate(config)
        assert str(refused.value) == str(expected.value)


def test_what_is_no_configuration_is_refused_in_the_same_words() -> None:
    for config in ({}, {"services": 4}, {"services": {"Echo": 4}}, 4):
        with pytest.raises(SchemaError) as refused:
            CheckedOnce(STOCK).validate(config)
        with pytest.raises(SchemaError) as expected:
            STOCK.validate(config)
        assert str(refused.value) == str(expected.value)


def test_a_schema_that_says_other_things_of_a_service_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Schema({"services": {str: {"threads": int}}})
    monkeypatch.setattr(v2, "SCHEMA", other)
    keep_defaults()
    assert v2.SCHEMA is other
