"""Bodies with files: `@PATH` at a field that the schema calls a file is the file's content, as with
`curl -F`; pure but for reading the files.

BentoML takes files as multipart/form-data (RFC 7578) with the other fields as JSON texts, and
where the method's one argument is a file, as the body itself.
"""

from __future__ import annotations

import json
import mimetypes
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking.payloads import MOST_BYTES
from hotplate.platform.schema.methods import ServiceMethod

JSON = "application/json"
ANY_FILE = "application/octet-stream"
_SIGN = "@"


@dataclass(frozen=True)
class _Form:
    """How the parts of all bodies are written."""

    boundary: bytes

    def part(self, name: str, content: bytes, path: Path | None = None) -> bytes:
        about = f'form-data; name="{_quoted(name)}"'
        if path is not None:
            about += f'; filename="{_quoted(path.name)}"\r\nContent-Type: {_type_of(path)}'
        head = f"Content-Disposition: {about}\r\n\r\n".encode()
        return b"--%b\r\n%b%b\r\n" % (self.boundary, head, content)

    def body(self, parts: Sequence[bytes]) -> bytes:
        return b"".join(parts) + b"--%b--\r\n" % self.boundary


def with_files(
    bodies: Sequence[bytes], method: ServiceMethod | None
) -> tuple[Sequence[bytes], str]:
    """JSON texts as they are sent, and their content type: as they are, unless one names a file.

    Raises BadSetting for a file that cannot be read, and where all are too large together.
    """
    if method is None or not any(b'"' + _SIGN.encode() in body for body in bodies):
        return bodies, JSON
    values = [json.loads(body) for body in bodies]
    if method.root and _takes_files(method.input):
        return _whole(values)
    fields = _file_fields(method)
    if not any(_names_files(value, fields) for value in values):
        return bodies, JSON
    form = _Form(secrets.token_hex(16).encode())
    content_type = f"multipart/form-data; boundary={form.boundary.decode()}"
    return _within_limit(_as_form(value, fields, form) for value in values), content_type


def _whole(values: Sequence[Any]) -> tuple[Sequence[bytes], str]:
    """Of a method whose body is a file."""
    paths = [Path(str(value).removeprefix(_SIGN)).expanduser() for value in values]
    types = {_type_of(path) for path in paths}
    contents = _within_limit(_read(path, "the body") for path in paths)
    return contents, types.pop() if len(types) == 1 else ANY_FILE


def _file_fields(method: ServiceMethod) -> frozenset[str]:
    properties = method.input.get("properties")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    return frozenset(name for name, schema in fields if _takes_files(schema))


def _takes_files(schema: object) -> bool:
    """Whether a value is a file, a list of files, or may be one of these."""
    if not isinstance(schema, Mapping):
        return False
    inner = [schema.get("items")]
    for key in ("anyOf", "oneOf"):
        inner += among if isinstance(among := schema.get(key), list) else []
    return schema.get("type") == "file" or any(
        isinstance(each, Mapping) and each.get("type") == "file" for each in inner
    )


def _names_files(value: Any, fields: frozenset[str]) -> bool:
    return isinstance(value, dict) and any(
        _path_of(each) is not None
        for name in fields & value.keys()
        for each in _listed(value[name])
    )


def _as_form(value: Any, fields: frozenset[str], form: _Form) -> bytes:
    if not isinstance(value, dict):
        raise BadSetting(
            f"--payload {json.dumps(value):.60} is no JSON object, whose fields a form could have"
        )
    parts = []
    for name, content in value.items():
        if name not in fields:
            parts.append(form.part(name, json.dumps(content).encode()))
            continue
        for each in _listed(content):
            path = _path_of(each)
            # What names no file is a URL, which the service fetches.
            sent = str(each).encode() if path is None else _read(path, name)
            parts.append(form.part(name, sent, path))
    return form.body(parts)


def _listed(value: Any) -> Sequence[Any]:
    """The files of a field; none where it is null."""
    if value is None:
        return ()
    return value if isinstance(value, list) else [value]


def _path_of(value: Any) -> Path | None:
    if not isinstance(value, str) or not value.startswith(_SIGN):
        return None
    return Path(value.removeprefix(_SIGN)).expanduser()


def _read(path: Path, field: str) -> bytes:
    try:
        with path.open("rb") as file:  # which may be a pipe, or have no end
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSetting(f"--payload, {field}: {path} cannot be read: {why}") from error


def _within_limit(bodies: Iterator[bytes]) -> list[bytes]:
    found, all_bytes = [], 0
    for body in bodies:
        found.append(body)
        all_bytes += len(body)
        if all_bytes > MOST_BYTES:
            raise BadSetting(
                f"--payload has more than {MOST_BYTES >> 20} MiB with its files, which each "
                "process of the load test would have in memory; give fewer or smaller ones"
            )
    return found


def _type_of(path: Path) -> str:
    return mimetypes.guess_type(path.name)[0] or ANY_FILE


def _quoted(name: str) -> str:
    """As browsers write names of a form's fields and files (the HTML standard)."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
