"""JSON Schema (draft 2020-12, as OpenAPI 3.1 has it) in few words; pure."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
ANYTHING: Schema = {}
_PLAIN: dict[object, Schema] = {
    str: TEXT,
    int: WHOLE,
    float: NUMBER,
    bool: FLAG,
    datetime: MOMENT,
    Any: ANYTHING,
    object: ANYTHING,
}


def null_or(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def members(**named: Schema) -> Schema:
    """An object that has all of these, and may have others."""
    return {"type": "object", "properties": named, "required": sorted(named)}


def optional(**named: Schema) -> Schema:
    """An object that may have these, and nothing else."""
    return {"type": "object", "properties": named, "additionalProperties": False}


def page(items: Schema) -> Schema:
    """Our lists."""
    return members(items=many(items), total=WHOLE)


def of_record(record: type[DataclassInstance]) -> Schema:
    """The JSON of a dataclass whose members are answered as they are."""
    hints = get_type_hints(record)
    return members(**{field.name: _of(hints[field.name]) for field in fields(record)})


def _of(kind: Any) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = [each for each in arguments if each is not type(None)]
        return null_or(_of(inner))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return mapping(_of(arguments[1]))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return many(_of(arguments[0]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return one_of([str(each.value) for each in kind])
    raise TypeError(f"{kind!r} has no schema here")
