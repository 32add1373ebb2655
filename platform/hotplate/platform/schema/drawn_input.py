"""Values for a JSON schema that differ from request to request, and that a service takes; pure.

`sample_input.py` shows a plausible value for any schema; here what cannot be known is refused.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from hotplate.platform.schema.sample_input import DEEPEST, FORMATS, NAMED, Schema, members, sample

WORDS = (
    *("bread", "butter", "flour", "kettle", "oven", "pepper", "salt", "soup", "spoon", "water"),
    *("the", "a", "and", "with", "over", "boils", "bakes", "rises", "slowly", "warm"),
)
MOST_WORDS = 12
SPAN = 100
"""A number that has one bound, or none, is at most so far from it, or from 0."""
MOST_ITEMS = 100_000
"""Of a list or a tensor."""
LONGEST_TEXT = 1_000_000


class CannotFill(ValueError):
    """Nobody can say which value a field takes: a file, a pattern, a reference to nothing."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field or 'the body'}: {why}")
        self.field = field


def drawn(schema: object, rng: random.Random) -> Any:
    """The author's examples, else the default, else a value of the type, as JSON has them.

    Raises CannotFill with the field's path: `messages.image`.
    """
    definitions = schema.get("$defs") if isinstance(schema, Mapping) else None
    return _Drawing(rng, definitions if isinstance(definitions, Mapping) else {}).value(schema)


class _Drawing:
    """One value, with what its schema's references mean."""

    def __init__(self, rng: random.Random, definitions: Schema) -> None:
        self._rng = rng
        self._definitions = definitions

    def value(self, schema: object, path: str = "", deep: int = 0) -> Any:
        if not isinstance(schema, Mapping):
            return sample(schema)
        if deep > 2 * DEEPEST:
            raise CannotFill(path, "it is nested too deeply")
        for key in ("examples", "enum"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                return self._rng.choice(choices)
        for key in ("example", "const", "default"):
            if key in schema:
                return schema[key]
        if isinstance(reference := schema.get("$ref"), str):
            return self.value(self._meant(reference, path), path, deep + 1)
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(among := schema.get(key), list) and among:
                return self._first(among, path, deep)
        return self._typed(schema, path, deep)

    def _meant(self, reference: str, path: str) -> Schema:
        found = self._definitions.get(reference.removeprefix("#/$defs/"))
        if not isinstance(found, Mapping):
            raise CannotFill(path, f"its schema is a reference to {reference}, which is not there")
        return found

    def _first(self, among: list[Any], path: str, deep: int) -> Any:
        """Of the first alternative that can be filled; null only where nothing else is."""
        failure = None
        of_null = [each for each in among if _kind(each) == "null"]
        for each in among:
            if each not in of_null:
                try:
                    return self.value(each, path, deep + 1)
                except CannotFill as error:
                    failure = failure or error
        if failure is not None and not of_null:
            raise failure
        return None

    def _typed(self, schema: Schema, path: str, deep: int) -> Any:
        match _kind(schema):
            case "file":
                raise CannotFill(path, "it is a file, and has no example")
            case "integer" | "number" as kind:
                return self._number(schema, path, whole=kind == "integer")
            case "boolean":
                return self._rng.random() < 0.5
            case "array":
                return self._list(schema, path, deep)
            case "object":
                return self._object(schema, path, deep)
            case "tensor":
                return self._tensor(schema, path)
            case "string":
                return self._text(schema, path)
        return sample(schema)

    def _object(self, schema: Schema, path: str, deep: int) -> dict[str, Any]:
        found = {
            name: self.value(each, f"{path}.{name}" if path else name, deep + 1)
            for name, each in members(schema).items()
        }
        more = schema.get("additionalProperties")
        if not found and isinstance(more, Mapping):
            found["key"] = self.value(more, f"{path}.key" if path else "key", deep + 1)
        return found

    def _list(self, schema: Schema, path: str, deep: int) -> list[Any]:
        if isinstance(places := schema.get("prefixItems"), list):
            return [self.value(each, path, deep + 1) for each in places]
        least, most = schema.get("minItems"), schema.get("maxItems")
        size = max(1, least) if isinstance(least, int) else 1
        if isinstance(most, int):
            size = min(size, most)
        if size > MOST_ITEMS:
            raise CannotFill(path, f"it has at least {size} items")
        return [self.value(schema.get("items") or {}, path, deep + 1) for _ in range(size)]

    def _number(self, schema: Schema, path: str, *, whole: bool) -> float:
        low = max(_bounds(schema, "minimum", "exclusiveMinimum"), default=None)
        high = min(_bounds(schema, "maximum", "exclusiveMaximum"), default=None)
        if low is None:
            low = 0.0 if high is None or high >= 0 else high - SPAN
        if high is None:
            high = low + SPAN
        step = schema.get("multipleOf", 1 if whole else None)
        excluded = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
        if isinstance(step, int | float) and step > 0:
            first, last = math.ceil(low / step), math.floor(high / step)
            first += first * step in excluded
            last -= last * step in excluded
            value = self._rng.randint(first, last) * step if first <= last else None
        else:
            value = self._rng.uniform(low, high)
            value = None if value in excluded or not low <= value <= high else round(value, 6)
        if value is None or value != value or not low <= value <= high:
            raise CannotFill(path, f"no number lies between {low:g} and {high:g}")
        return int(value) if whole else value

    def _text(self, schema: Schema, path: str) -> str:
        if schema.get("pattern") is not None:
            raise CannotFill(path, "it is a text of a pattern, and has no example")
        text = FORMATS.get(str(schema.get("format")), "") or NAMED.get(path.rpartition(".")[2], "")
        text = text or " ".join(self._rng.choices(WORDS, k=self._rng.randint(1, MOST_WORDS)))
        shortest, longest = schema.get("minLength"), schema.get("maxLength")
        if isinstance(shortest, int) and len(text) < shortest:
            if shortest > LONGEST_TEXT:
                raise CannotFill(path, f"it has at least {shortest} characters")
            text = text.ljust(shortest, ".")
        return text[:longest] if isinstance(longest, int) and longest >= 0 else text

    def _tensor(self, schema: Schema, path: str) -> Any:
        """Of each dimension that is open, one; two numbers where no shape is given."""
        shape = schema.get("shape")
        sizes = shape if isinstance(shape, list) else [2]
        sizes = [each if isinstance(each, int) and each > 0 else 1 for each in sizes]
        if math.prod(sizes) > MOST_ITEMS or len(sizes) > DEEPEST:
            raise CannotFill(path, f"it has {math.prod(sizes)} numbers in {len(sizes)} dimensions")
        dtype = str(schema.get("dtype") or "float32")

        def nested(left: list[int]) -> Any:
            if left:
                return [nested(left[1:]) for _ in range(left[0])]
            if dtype == "bool":
                return self._rng.random() < 0.5
            return self._rng.randint(0, 9) if "int" in dtype else round(self._rng.random(), 3)

        return nested(sizes)


def _kind(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return ""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if isinstance(schema.get("properties"), Mapping) else "string"


def _bounds(schema: Schema, *keys: str) -> list[float]:
    found = [schema.get(key) for key in keys]
    return [
        float(each)
        for each in found
        if isinstance(each, int | float) and not isinstance(each, bool) and abs(each) <= 1e15
    ]
