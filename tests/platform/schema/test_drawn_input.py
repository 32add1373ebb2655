"""Values that a service takes, or a sentence that says which field nobody can fill."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.schema.drawn_input import CannotFill, drawn
from hotplate.platform.schema.methods import service_methods


def of(schema: Any, seed: int = 0) -> Any:
    return drawn(schema, random.Random(seed))


def members(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "examples": ["lamp"], "default": "x"}, "lamp"),
        ({"type": "string", "default": ""}, ""),
        ({"type": "file", "default": None}, None),
        ({"type": "file", "examples": ["http://x/y.png"]}, "http://x/y.png"),
        ({"const": 7}, 7),
        ({"enum": ["a"]}, "a"),
        ({"type": "null"}, None),
        ({"type": "integer", "minimum": 5, "maximum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6}, 5),
        ({"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 20}, 14),
        ({"type": "number", "minimum": 0.5, "maximum": 0.5}, 0.5),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "maxLength": 0}, ""),
        ({"type": "array", "items": {"const": 1}, "minItems": 3}, [1, 1, 1]),
        ({"type": "array", "items": {"const": 1}, "maxItems": 0}, []),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": "a"}]}, [1, "a"]),
        ({"anyOf": [{"type": "file"}, {"const": 2}]}, 2),
        ({"anyOf": [{"type": "file"}, {"type": "null"}]}, None),
        ({"type": ["null", "integer"], "minimum": 3, "maximum": 3}, 3),
        ({"type": "object", "additionalProperties": {"const": 1}}, {"key": 1}),
        ({"type": "object"}, {}),
        (members(role={"type": "string"}), {"role": "user"}),
        (
            {"type": "array", "items": {"$ref": "#/$defs/M"}, "$defs": {"M": {"const": 4}}},
            [4],
        ),
    ],
)
def test_a_value_is_the_authors_or_fits_the_type(schema: Any, value: Any) -> None:
    assert of(schema) == value


def test_values_differ_by_the_seed_and_are_the_same_for_one() -> None:
    schema = members(words={"type": "string"}, many={"type": "integer"}, share={"type": "number"})
    assert of(schema, 1) == of(schema, 1)
    assert of(schema, 1) != of(schema, 2)


def test_a_tensor_has_its_whole_shape_and_open_dimensions_have_one() -> None:
    value = of({"type": "tensor", "shape": [-1, 3, 5], "dtype": "int64"})
    assert (len(value), len(value[0]), len(value[0][0])) == (1, 3, 5)
    assert all(isinstance(each, int) for each in value[0][0])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (members(image={"type": "file", "format": "image"}), "image: it is a file"),
        (members(a=members(b={"type": "file"})), "a.b: it is a file"),
        (members(all={"type": "array", "items": {"type": "file"}}), "all: it is a file"),
        ({"type": "file"}, "the body: it is a file"),
        (members(code={"type": "string", "pattern": "^[A-Z]{3}$"}), "code: it is a text of a pat"),
        (members(x={"type": "integer", "minimum": 5, "maximum": 4}), "x: no number lies between"),
        (members(x={"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 9}), "x: no numb"),
        (members(x={"$ref": "#/$defs/Y"}), "x: its schema is a reference to #/$defs/Y"),
        (members(x={"type": "tensor", "shape": [1000, 1000]}), "x: it has 1000000 numbers"),
        (members(x={"type": "array", "minItems": 10**9}), "x: it has at least 1000000000 items"),
        (members(x={"type": "string", "minLength": 10**9}), "x: it has at least 1000000000 chara"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "nested too deeply"),
        ({"$ref": "#/$defs/A", "$defs": {"A": members(a={"$ref": "#/$defs/A"})}}, "too deeply"),
    ],
)
def test_a_field_that_nobody_can_fill_is_named(schema: Any, said: str) -> None:
    with pytest.raises(CannotFill, match=said.replace("$", r"\$")):
        of(schema)


KEYS = st.sampled_from(
    (
        *("type", "properties", "items", "anyOf", "enum", "default", "format", "shape", "columns"),
        *("minimum", "maximum", "exclusiveMinimum", "multipleOf", "maxLength", "minItems"),
        *("required", "additionalProperties", "$ref", "$defs", "prefixItems", "examples"),
    )
)
KINDS = st.sampled_from(
    ("string", "integer", "number", "boolean", "array", "object", "tensor", "dataframe", "file")
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
JSON = st.recursive(
    SCALARS | KINDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=6)
    ),
    max_leaves=30,
)


@given(JSON, st.integers(0, 3))
def test_no_schema_that_anybody_writes_is_too_odd(schema: Any, seed: int) -> None:
    try:
        value = of(schema, seed)
    except CannotFill:
        return
    json.dumps(value)


@given(st.integers(-50, 50), st.integers(0, 60), st.booleans(), st.booleans(), st.integers(0, 9))
def test_a_number_is_within_its_bounds(
    low: int, span: int, whole: bool, exclusive: bool, seed: int
) -> None:
    prefix = "exclusiveM" if exclusive else "m"
    high = low + span
    schema = {
        "type": "integer" if whole else "number",
        f"{prefix}inimum": low,
        f"{prefix}aximum": high,
    }
    try:
        value = of(schema, seed)
    except CannotFill:
        assert exclusive and span < 2
        return
    assert low < value < high if exclusive else low <= value <= high


def test_methods_are_those_that_a_schema_lists() -> None:
    schema = {
        "routes": [
            {"name": "a", "route": "/a", "output": {"is_stream": True}},
            {"name": "b", "route": "/b", "is_task": True, "input": members(x={"const": 1})},
            {"name": "odd"},
            "odd",
        ]
    }
    first, second = service_methods(schema)
    assert (first.route, first.streams, first.is_task, first.input) == ("/a", True, False, {})
    assert (second.route, second.streams, second.is_task) == ("/b", False, True)
    assert list(service_methods(None)) == list(service_methods({"routes": 1})) == []
