"""Checked reading of JSON: every complaint is one sentence that opens with the field's path."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hotplate.machine.nearest import nearest
from hotplate.platform.errors import Invalid

SHOWN_MAX = 80
"""Characters of a value or key that a complaint repeats."""
NUMBER_MAX = 2**53
"""From there on, readers of JSON do not agree; no amount or time is as large."""


class Fields:
    """A JSON object on its way in. Absent and null are the same: the client sends both."""

    def __init__(self, value: object, path: str = "", *, hides: bool = False) -> None:
        """Raises Invalid unless `value` is an object. With `hides` no complaint repeats a value of
        it, at any depth: they may be secret."""
        self._hides = hides
        if not isinstance(value, Mapping):
            raise Invalid(f"{path or 'body'}: {self._shown(value)} is not an object")
        self._values = value
        self._path = path

    def at(self, key: object) -> str:
        """The path of a member, for messages."""
        shown = str(key)[:SHOWN_MAX]
        return f"{self._path}.{shown}" if self._path else shown

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """A string; without a default it must be there and not be empty."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or (default is None and not value):
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is not a string")
        if "\x00" in value:  # PostgreSQL cannot keep it
            raise Invalid(f"{self.at(key)}: it has a NUL character; leave that out")
        return value

    def exact_text(self, key: str) -> str:
        """A string that has to be there, and may be empty."""
        return self.text(key, None if self._values.get(key) is None else "")

    def flag(self, key: str) -> bool:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is not true or false")
        return bool(value)

    def number(
        self, key: str, default: int | None = None, low: int = 0, high: int = NUMBER_MAX
    ) -> int | None:
        """A whole number from `low` to `high`, or the default."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is not a whole number")
        if value < low:
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is below {low}")
        self._check_most(key, value, high)
        return value

    def amount(self, key: str) -> float | None:
        """A number above 0, or None."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is not a number above 0")
        self._check_most(key, value, NUMBER_MAX)
        return float(value)

    def _check_most(self, key: str, value: float, most: int) -> None:
        if value > most:
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is above {most}")

    def value(self, key: str) -> Any:
        """Anything, or None."""
        return self._values.get(key)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object of any content; empty where there is none."""
        return self.fields(key)._values

    def fields(self, key: str) -> Fields:
        value = self._values.get(key)
        return Fields({} if value is None else value, self.at(key), hides=self._hides)

    def values(self, key: str) -> list[Any]:
        value = self._values.get(key)
        if value is not None and not isinstance(value, list):
            raise Invalid(f"{self.at(key)}: {self._shown(value)} is not a list")
        return value or []

    def texts(self, key: str) -> list[str]:
        """A string, or a list of them."""
        if isinstance(self._values.get(key), str):
            return [self.text(key, "")]
        for index, item in enumerate(self.values(key)):
            if not isinstance(item, str):
                raise Invalid(f"{self.at(key)}[{index}]: {self._shown(item)} is not a string")
        return self.values(key)

    def items(self, key: str) -> Iterator[Fields]:
        """The objects of a list."""
        for index, item in enumerate(self.values(key)):
            yield Fields(item, f"{self.at(key)}[{index}]", hides=self._hides)

    def pairs(self, key: str, name: str) -> list[dict[str, str]]:
        """A list of `{name, "value"}`; no name twice."""
        found: dict[str, dict[str, str]] = {}
        for item in self.items(key):
            label = item.text(name)
            if label in found:
                raise Invalid(f"{item.at(name)}: {label!r} is there twice")
            found[label] = {name: label, "value": item.text("value", "")}
        return list(found.values())

    def choice(self, key: str, choices: Collection[str]) -> str | None:
        """One of `choices`, or None."""
        if not self.has(key):
            return None
        value = self.text(key, "")
        if value not in choices:
            raise Invalid(
                f"{self.at(key)}: there is no {_shown(value)}{suggestion(value, choices)}"
            )
        return value

    def hiding(self) -> Fields:
        """The same, of which no complaint repeats a value."""
        return Fields(self._values, self._path, hides=True)

    def _shown(self, value: object) -> str:
        if self._hides and value is not None:
            return f"what is there (of type {type(value).__name__})"
        return _shown(value)


def suggestion(value: str, choices: Collection[str]) -> str:
    """The end of a complaint: the nearest choice where there is one, else all of them."""
    near = nearest(value[:SHOWN_MAX], choices)
    known = ", ".join(sorted(choices)) or "none"
    return f"; did you mean {near!r}? (known: {known})" if near else f" (known: {known})"


def _shown(value: object) -> str:
    return "null" if value is None else f"{value!r:.{SHOWN_MAX}}"
