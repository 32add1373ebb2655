"""A plausible value for a JSON schema, as BentoML writes them for inputs; pure.

Schemas are a bento's, so anybody's: whatever does not fit is taken for a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

DEEPEST = 6
"""Levels of objects and lists; below, a value is null."""
WIDEST = 20
"""Members of an object that are filled in, and characters of a text at least."""
EXAMPLE_CHARS = 1000
"""An example of the author's that is longer, as JSON, is not used."""

FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00",
    "email": "ann@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "binary": "AAAA",
}
NAMED = {
    "role": "user",
    "url": "https://example.com/",
    "language": "en",
    "question": "What is a hotplate?",
    "prompt": "Write a line about bread.",
    "query": "bread",
}
TEXT = "Hello"

Schema = Mapping[str, Any]


def sample(schema: object, name: str = "", deep: int = 0) -> Any:
    """A value as JSON has them. `name` is what the schema's object calls it."""
    if not isinstance(schema, Mapping) or deep > DEEPEST:
        return None
    for given in _given(schema, deep):
        return given
    kind = schema.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        kind = next((each for each in kind if each != "null"), None)
    if kind is None or not isinstance(kind, str):
        kind = "object" if isinstance(schema.get("properties"), Mapping) else "string"
    match kind:
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [sample(schema.get("items") or {}, name, deep + 1)]
        case "object":
            return _object(schema, deep)
        case "tensor":
            return _tensor(schema)
        case "dataframe":
            return _dataframe(schema)
        case _:
            return _text(schema, name)


def members(schema: Schema) -> dict[str, Any]:
    """The schemas of what an input consists of: what must be there, else what may."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    chosen = [name for name in properties if name in needed] or list(properties)
    return {name: properties[name] for name in chosen[:WIDEST]}


def _given(schema: Schema, deep: int) -> list[Any]:
    """The values that the author allows."""
    found = []
    examples = schema.get("examples")
    found += examples[:1] if isinstance(examples, list) else []
    found += [schema[key] for key in ("example", "const") if schema.get(key) is not None]
    if schema.get("default") not in (None, "", [], {}):
        found.append(schema["default"])
    choices = schema.get("enum")
    found += choices[:1] if isinstance(choices, list) else []
    found = [each for each in found if _is_short(each)]
    for key in ("anyOf", "oneOf", "allOf"):
        among = schema.get(key)
        for each in among if isinstance(among, list) else []:
            if isinstance(each, Mapping) and each.get("type") != "null" and not found:
                found.append(sample(each, "", deep + 1))
    return found


def _is_short(value: Any) -> bool:
    try:
        return len(json.dumps(value)) <= EXAMPLE_CHARS
    except RecursionError:
        return False


def _number(schema: Schema) -> Any:
    """One within its bounds, 1 if that is."""
    whole = schema.get("type") == "integer"
    low, high = _bound(schema, "minimum", 0.0), _bound(schema, "maximum", 0.0)
    above = _bound(schema, "exclusiveMinimum", 1.0 if whole else 0.5)
    below = _bound(schema, "exclusiveMaximum", -1.0 if whole else -0.5)
    value = max([1.0, *(bound for bound in (low, above) if bound is not None)])
    value = min([value, *(bound for bound in (high, below) if bound is not None)])
    return int(value) if whole or value == int(value) else value


def _bound(schema: Schema, key: str, step: float) -> float | None:
    value = schema.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15:
        return None
    return value + step


def _text(schema: Schema, name: str) -> str:
    formatted = schema.get("format")
    text = FORMATS.get(formatted, "") if isinstance(formatted, str) else ""
    text = text or NAMED.get(name, TEXT)
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    if isinstance(shortest, int) and len(text) < shortest <= EXAMPLE_CHARS:
        text = text.ljust(shortest, ".")
    return text[:longest] if isinstance(longest, int) and longest > 0 else text


def _object(schema: Schema, deep: int) -> dict[str, Any]:
    found = {key: sample(each, key, deep + 1) for key, each in members(schema).items()}
    more = schema.get("additionalProperties")
    if not found and isinstance(more, Mapping):
        found["key"] = sample(more, "", deep + 1)
    return found


def _tensor(schema: Schema) -> Any:
    """Two numbers where no shape says otherwise; of each dimension two at most."""
    shape = schema.get("shape")
    sizes = shape if isinstance(shape, list) else [2]
    sizes = [each if isinstance(each, int) and each > 0 else 1 for each in sizes][:DEEPEST]
    dtype = str(schema.get("dtype") or "float32")
    value: Any = True if dtype == "bool" else 1 if "int" in dtype else 1.0
    for size in reversed(sizes):
        # A shape that is given is meant: only what would be too long to read is cut.
        value = [value] * min(size, 4)
    return value


def _dataframe(schema: Schema) -> Any:
    named = schema.get("columns")
    columns = [str(each) for each in named][:WIDEST] if isinstance(named, list) else []
    columns = columns or ["column"]
    if schema.get("orient") == "columns":
        return {column: [1] for column in columns}
    return [dict.fromkeys(columns, 1)]
