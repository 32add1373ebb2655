"""BentoML's default configuration is read once, and each use of it has its own."""

from __future__ import annotations

import pytest
from bentoml._internal.configuration import containers

from hotplate.serving.replica.inside.patches.default_configuration import keep_defaults


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
