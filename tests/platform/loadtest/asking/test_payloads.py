"""The bodies of a load test: given as JSON or a file, or made from a schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking.payloads import given, made
from hotplate.platform.schema.methods import ServiceMethod


def method(**properties: Any) -> ServiceMethod:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ServiceMethod("m", "/m", "", False, False, schema)


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ('{"a": 1}', [b'{"a":1}']),
        ("[1, 2]", [b"[1,2]"]),
        ("5", [b"5"]),
        ('"käse"', ['"käse"'.encode()]),
    ],
)
def test_json_is_one_body_in_one_line(text: str, bodies: list[bytes]) -> None:
    assert given(text) == bodies


@pytest.mark.parametrize(
    ("content", "bodies"),
    [
        (b'{"a": 1}\n{"a": 2}\n', [b'{"a":1}', b'{"a":2}']),
        (b'{"a": 1}\r\n\r\n{"a": 2}', [b'{"a":1}', b'{"a":2}']),
        (b'{\n  "a": 1\n}\n', [b'{"a":1}']),
        (b'\xef\xbb\xbf{"a": 1}', [b'{"a":1}']),
        ('{"a": "\u2028"}\n1\n'.encode(), ['{"a":"\u2028"}'.encode(), b"1"]),
    ],
)
def test_a_file_is_one_document_or_one_in_each_line(
    tmp_path: Path, content: bytes, bodies: list[bytes]
) -> None:
    path = tmp_path / "payloads.jsonl"
    path.write_bytes(content)
    assert given(str(path)) == bodies


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b'{"a": 1}\n{"a": \n', r"line 2 is not valid JSON: .* at character"),
        (b"NaN\n", "line 1 is not valid JSON: NaN is not a number that JSON has"),
        (b"\xff\xfe", "is not a file of JSON"),
        (b'{"a": 1}\n' + b"[" * 100_000, "line 2 is not valid JSON"),
        (b'"\\ud800"', "line 1 is not valid JSON: it cannot be written as UTF-8"),
    ],
)
def test_a_file_of_something_else_is_refused_with_its_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "payloads.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadSetting, match=said):
        given(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no-such-file.json", "neither JSON nor a file that can be read: No such file"),
        ("/", "neither JSON nor a file that can be read: Is a directory"),
        ('{"a": nan}', "is not valid JSON"),
        ('{"a": 1', "is not valid JSON: Expecting ',' delimiter at character 8"),
        ("x" * 5000, "neither JSON nor a file that can be read: File name too long"),
        ("a\0b", "is not a file of JSON"),
        ("/dev/zero", "has more than 64 MiB"),
        ("", "neither JSON nor a file"),
    ],
)
def test_what_is_neither_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        given(text)


def test_bodies_of_a_schema_differ_and_are_the_same_for_a_seed() -> None:
    about = method(text={"type": "string"}, count={"type": "integer"})
    assert made(about, 3) == made(about, 3) != made(about, 4)
    bodies = [json.loads(body) for body in made(about, 3)]
    assert len(bodies) > 10
    assert all(isinstance(each["text"], str) and type(each["count"]) is int for each in bodies)


def test_a_schema_with_one_value_makes_one_body() -> None:
    assert made(method(text={"examples": ["hello"]}), 0) == [b'{"text":"hello"}']


def test_a_field_that_cannot_be_made_is_named_with_the_flag() -> None:
    with pytest.raises(
        BadSetting, match=r"no payload can be made for /m: image: it is a file.*--payload"
    ):
        made(method(image={"type": "file"}), 0)
