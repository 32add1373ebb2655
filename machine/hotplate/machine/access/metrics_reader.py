"""A token that shows metrics, as far as a server needs it that does not make tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALL = ""
"""The lines of all organizations, and those that are about the installation."""


@dataclass(frozen=True)
class MetricsReader:
    """A token of the scope `metrics`."""

    digest: str
    """SHA-256, hex."""
    expires_at: float | None = None
    """Unix seconds; None = never."""
    organization: str = ALL
    """Whose lines it shows; `ALL` = it is an operator's."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MetricsReader:
        """Raises KeyError and TypeError for what is none."""
        return MetricsReader(str(data["digest"]), data["expires_at"], str(data["organization"]))
