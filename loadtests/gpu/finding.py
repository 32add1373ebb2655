"""What a check has found: one row of the table."""

from __future__ import annotations

from dataclasses import dataclass


class CheckFailed(Exception):
    """Something is not as it should be; the message is a sentence."""


@dataclass(frozen=True)
class Finding:
    what: str
    figure: str = ""
    holds: bool | None = None
    """None for a figure without a bound."""
    remark: str = ""


def ensure(holds: bool, otherwise: str) -> None:
    """Raises CheckFailed with that sentence."""
    if not holds:
        raise CheckFailed(otherwise)
