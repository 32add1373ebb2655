"""How to call each of a service's methods, with curl and with BentoML's client; pure.

Names and routes are a bento's: all of them are quoted for the shell and for Python.
"""

from __future__ import annotations

import json
import keyword
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote

from hotplate.platform.schema.methods import ServiceMethod, service_methods
from hotplate.platform.schema.sample_input import members, sample

SHOWN = 12
"""Methods with an example; a page of more is read by nobody."""
FILES = {"image": "picture.png", "audio": "sound.wav", "video": "film.mp4"}
MOUNTED = 20
"""Routes of mounted applications with an example."""
TOKEN = "ENDPOINT_TOKEN"
CLIENTS_OWN = frozenset(
    ("call", "client", "client_cls", "close", "default_temp_dir", "is_ready", "request", "serde")
)
"""Names with another meaning in BentoML's client: a method of that name is `api_NAME` there."""
SAFE_IN_ROUTES = "/:@!$&'()*+,;=~"


@dataclass(frozen=True)
class SampleCall:
    """One method of a service."""

    title: str
    """Its route."""
    doc: str
    curl: str
    python: str


@dataclass(frozen=True)
class _Call:
    """One method at a deployment."""

    method: ServiceMethod
    url: str
    """Of the deployment."""
    protected: bool

    @property
    def arguments(self) -> dict[str, Any]:
        """By name, what is sent; a `_File` for a file."""
        return {name: _value(each, name) for name, each in members(self.method.input).items()}

    @property
    def address(self) -> str:
        return self.url + quote(self.method.route, safe=SAFE_IN_ROUTES)


@dataclass(frozen=True)
class _File:
    name: str

    def __repr__(self) -> str:
        return f"Path({self.name!r})"


def sample_calls(schema: object, url: str, *, protected: bool) -> list[SampleCall]:
    """Of the methods that a bento's `schema` lists; `protected` = callers need a token."""
    shown = islice(service_methods(schema), SHOWN)
    return [_sample(_Call(method, url, protected)) for method in shown]


def _sample(call: _Call) -> SampleCall:
    method = call.method
    return SampleCall(method.route, method.doc.strip(), _curl(call), _python(call))


def plain_call(url: str, path: str, *, protected: bool) -> str:
    """A GET with curl."""
    return " ".join(["curl", *_token(protected), shlex.quote(url + quote(path, SAFE_IN_ROUTES))])


def _value(schema: object, name: str) -> Any:
    if isinstance(schema, Mapping):
        if schema.get("type") == "file":
            return _File(FILES.get(str(schema.get("format")), "file.bin"))
        items = schema.get("items")
        if isinstance(items, Mapping) and items.get("type") == "file":
            return [_value(items, name)]
    return sample(schema, name)


def _curl(call: _Call) -> str:
    address = call.address + ("/submit" if call.method.is_task else "")
    words = ["curl", *(["-N"] if call.method.streams else []), *_token(call.protected)]
    lines = [" ".join([*words, "-X POST", shlex.quote(address)]), *_body(call)]
    curl = " \\\n  ".join(lines)
    if call.method.is_task:
        asks = shlex.quote(f"{call.address}/get?task_id=TASK_ID")
        curl += "\n" + " ".join(["curl", *_token(call.protected), asks])
    return curl


def _body(call: _Call) -> Iterator[str]:
    """curl's arguments for it."""
    arguments = call.arguments
    if call.method.root:
        value = _value({**call.method.input, "root_input": None}, call.method.name)
        if isinstance(value, _File):
            yield f"--data-binary @{value.name}"
            return
    elif any(isinstance(_first(value), _File) for value in arguments.values()):
        for name, value in arguments.items():
            file = _first(value)
            part = f"@{file.name}" if isinstance(file, _File) else json.dumps(value)
            yield "-F " + shlex.quote(f"{name}={part}")
        return
    else:
        value = arguments
    yield "-H 'Content-Type: application/json'"
    yield "-d " + shlex.quote(json.dumps(value))


def _python(call: _Call) -> str:
    opens = f"{call.url!r}"
    if call.protected:
        opens += f", token=os.environ[{TOKEN!r}]"
    python = _expression(call)
    uses_files = "Path(" in python
    lines = [
        *(["import asyncio"] if call.method.is_task else []),
        *(["import os"] if call.protected else []),
        *(["from pathlib import Path"] if uses_files else []),
        *([""] if call.method.is_task or call.protected or uses_files else []),
        "import bentoml",
        "",
    ]
    if call.method.is_task:
        return "\n".join([*lines, *_task(opens, python)])
    lines.append(f"with bentoml.SyncHTTPClient({opens}) as client:")
    if call.method.streams:
        lines += [f"    for piece in {python}:", "        print(piece)"]
    else:
        lines.append(f"    print({python})")
    return "\n".join(lines)


def _task(opens: str, call: str) -> list[str]:
    """Its client for synchronous code cannot submit tasks (BentoML 1.4.39)."""
    return [
        "async def main():",
        f"    async with bentoml.AsyncHTTPClient({opens}) as client:",
        f"        task = await {call}",
        "        print(task.id, await task.get_status())",
        "",
        "asyncio.run(main())",
    ]


def _expression(call: _Call) -> str:
    does = ".submit" if call.method.is_task else ""
    name = f"api_{call.method.name}" if call.method.name in CLIENTS_OWN else call.method.name
    if call.method.root:
        given = repr(_value({**call.method.input, "root_input": None}, call.method.name))
    else:
        given = _keywords(call.arguments)
    if name == "__call__":
        return f"client{does}({given})"
    if _is_name(name):
        return f"client.{name}{does}({given})"
    return f"getattr(client, {name!r}){does}({given})"


def _keywords(arguments: Mapping[str, Any]) -> str:
    if all(map(_is_name, arguments)):
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"**{dict(arguments)!r}"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _token(protected: bool) -> list[str]:
    return [f'-H "Authorization: Bearer ${TOKEN}"'] if protected else []
