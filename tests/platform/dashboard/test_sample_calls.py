"""How the page says that a method is called; what runs of it against a service is elsewhere."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.dashboard.sample_calls import SampleCall, sample_calls
from hotplate.platform.schema.methods import mounted_paths
from hotplate.platform.schema.sample_input import sample

URL = "http://127.0.0.1:7100"


def method(name: str = "predict", output: Any = None, is_task: bool = False, **input: Any) -> Any:
    return {
        "name": name,
        "route": f"/{name}",
        "input": {"type": "object", **input},
        "output": output or {"type": "string"},
        "is_task": is_task,
    }


def call(route: Any, protected: bool = False) -> SampleCall:
    (found,) = sample_calls({"routes": [route]}, URL, protected=protected)
    ast.parse(found.python)
    return found


def words(curl: str) -> list[str]:
    return shlex.split(curl.replace("\\\n", " "))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "Hello"),
        ({"type": "string", "maxLength": 2}, "He"),
        ({"type": "string", "minLength": 7}, "Hello.."),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "examples": ["lamp"], "default": "x"}, "lamp"),
        ({"type": "string", "default": ""}, "Hello"),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "number", "maximum": 0.25}, 0.25),
        ({"type": "number", "exclusiveMaximum": 1}, 0.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "integer"]}, 1),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"type": "array", "items": {"type": "string"}}, ["Hello"]),
        ({"type": "tensor"}, [1.0, 1.0]),
        ({"type": "tensor", "shape": [1, 3], "dtype": "int64"}, [[1, 1, 1]]),
        ({"type": "dataframe"}, [{"column": 1}]),
        ({"type": "dataframe", "orient": "columns", "columns": ["a"]}, {"a": [1]}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"key": 1}),
        (
            {
                "type": "object",
                "properties": {"role": {"type": "string"}, "more": {"type": "string"}},
                "required": ["role"],
            },
            {"role": "user"},
        ),
    ],
)
def test_a_value_fits_its_schema(schema: Any, value: Any) -> None:
    assert sample(schema) == value


KEYS = st.sampled_from(
    (
        *("type", "properties", "items", "anyOf", "enum", "default", "format", "shape", "columns"),
        *("minimum", "maxLength", "required", "additionalProperties", "root_input", "is_task"),
        *("routes", "route", "name", "input", "output", "doc", "paths"),
    )
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=6)
    ),
    max_leaves=30,
)


@given(JSON)
def test_no_schema_that_anybody_writes_is_too_odd(schema: Any) -> None:
    json.dumps(sample(schema))
    mounted_paths(schema)
    for odd in (
        schema,
        {"routes": schema},
        {"routes": [method(), {"route": "/", "input": schema}]},
    ):
        for found in sample_calls(odd, URL, protected=True):
            ast.parse(found.python)


def test_a_schema_without_an_end_has_one() -> None:
    endless: dict[str, Any] = {"type": "array"}
    endless["items"] = endless
    assert json.dumps(sample(endless)).count("[") < 10
    chosen: dict[str, Any] = {}
    chosen["anyOf"] = [chosen]
    assert sample(chosen) is None
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert sample({"type": "integer", "examples": [deep]}) == 1


def test_json_goes_as_a_body_and_as_keywords() -> None:
    made = call(method(properties={"text": {"type": "string"}}, required=["text"]))
    assert words(made.curl) == [
        *("curl", "-X", "POST", f"{URL}/predict"),
        *("-H", "Content-Type: application/json", "-d", '{"text": "Hello"}'),
    ]
    assert f"with bentoml.SyncHTTPClient({URL!r}) as client:" in made.python
    assert "print(client.predict(text='Hello'))" in made.python


def test_files_go_as_a_form_streams_are_not_buffered_tasks_are_submitted() -> None:
    picture = {"type": "file", "format": "image"}
    files = {"images": {"type": "array", "items": picture}, "note": {"type": "string"}}
    made = call(method(properties=files, required=["images", "note"]))
    assert words(made.curl)[-4:] == ["-F", "images=@picture.png", "-F", 'note="Hello"']
    assert "client.predict(images=[Path('picture.png')], note='Hello')" in made.python

    stream = call(method(output={"type": "string", "is_stream": True}))
    assert "-N" in words(stream.curl)
    assert "for piece in client.predict():" in stream.python

    task = call(method(is_task=True), protected=True)
    assert f"{URL}/predict/submit" in words(task.curl)
    assert f"{URL}/predict/get?task_id=TASK_ID" in words(task.curl)
    assert "task = await client.predict.submit()" in task.python
    assert "token=os.environ['ENDPOINT_TOKEN']" in task.python


def test_names_are_quoted_for_the_shell_and_for_python() -> None:
    evil = "a'; touch /tmp/hacked; '"
    route = method(evil, properties={evil: {"type": "string", "default": evil}}, required=[evil])
    made = call(route)
    assert words(made.curl)[:3] == ["curl", "-X", "POST"]
    assert words(made.curl)[-1] == json.dumps({evil: evil})
    said = subprocess.run(
        ["/bin/sh", "-c", made.curl.replace("curl", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines()[-1] == json.dumps({evil: evil})
    assert repr(evil) in made.python


def test_a_method_that_the_client_has_one_of_itself_is_called_by_its_other_name() -> None:
    assert "client.api_call(" in call(method("call")).python
    assert "client(" in call(method("__call__")).python
    assert "getattr(client, 'class')(" in call(method("class")).python
