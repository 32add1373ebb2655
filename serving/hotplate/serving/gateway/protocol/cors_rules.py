"""Which pages of other origins may call a route (CORS): `http.cors` of `@bentoml.service`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cors:
    """What pages may send and read; `"*"` in a list allows all."""

    allow_origins: tuple[str, ...] = ()
    allow_credentials: bool = False
    allow_methods: tuple[str, ...] = ("GET",)
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age_s: int = 600

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Cors:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return Cors(**values)

    def allows(self, origin: str) -> bool:
        return "*" in self.allow_origins or origin in self.allow_origins
