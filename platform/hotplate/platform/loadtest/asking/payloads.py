"""The bodies that a load test sends in turn: those given, or made from the method's schema; pure
but for reading the file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hotplate.platform.errors import BadSetting
from hotplate.platform.schema.drawn_input import CannotFill, drawn
from hotplate.platform.schema.methods import ServiceMethod

MADE = 32
"""Bodies that are made of one schema: enough that a cache of answers does not answer them all."""
MOST_BYTES = 64 << 20
"""Of all bodies: each process of the load maker has them in memory."""


def given(text: str) -> list[bytes]:
    """The bodies of `--payload` as JSON: JSON itself, a file with one JSON document or one in each
    line, or `@PATH` for a body that is a file (`forms.py`). Raises BadSetting.
    """
    if text.startswith("@"):
        return [_line(text)]
    found = _json(text)
    if found is not None:
        return [found]
    if text.lstrip()[:1] in ("{", "["):
        raise BadSetting(f"--payload {_short(text)} is not valid JSON: {_fault(text)}")
    path = Path(text).expanduser()
    try:
        with path.open("rb") as file:  # which may be a pipe, or have no end
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadSetting(
                f"--payload {path} has more than {MOST_BYTES >> 20} MiB, which each process of the "
                "load test would have in memory; give a part of it"
            )
        decoded = content.decode("utf-8-sig")
    except OSError as error:
        raise BadSetting(
            f"--payload {_short(text)} is neither JSON nor a file that can be read: "
            f"{error.strerror}"
        ) from error
    except ValueError as error:  # not UTF-8, or a name with a zero
        raise BadSetting(f"--payload {_short(text)} is not a file of JSON: {error}") from error
    return _lines(path, decoded)


def _lines(path: Path, content: str) -> list[bytes]:
    if (whole := _json(content)) is not None:
        return [whole]
    found = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        body = _json(line)
        if body is None:
            raise BadSetting(
                f"--payload {path}, line {number} is not valid JSON: {_fault(line)}; write one "
                "document, or one in each line"
            )
        found.append(body)
    if not found:
        raise BadSetting(f"--payload {path} is empty; write a JSON document in each line")
    return found


def made(method: ServiceMethod, seed: int) -> list[bytes]:
    """The same for a seed: the author's examples, else defaults, else values of each type.

    Raises BadSetting with the field that cannot be filled.
    """
    rng = random.Random(seed)
    try:
        bodies = [_line(drawn(method.input, rng)) for _ in range(MADE)]
    except (CannotFill, ValueError, RecursionError) as error:
        raise BadSetting(
            f"no payload can be made for {method.route}: {error}; give one with --payload, in "
            "which @PATH names a file"
        ) from error
    return list(dict.fromkeys(bodies))


def _json(text: str) -> bytes | None:
    """In one line; None = it is no JSON."""
    try:
        return _line(json.loads(text, parse_constant=_refused))
    except (ValueError, RecursionError):
        return None


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number that JSON has")


def _fault(text: str) -> str:
    try:
        json.loads(text, parse_constant=_refused)
    except json.JSONDecodeError as error:
        return f"{error.msg} at character {error.pos + 1}"
    except (ValueError, RecursionError) as error:
        return str(error)
    return "it cannot be written as UTF-8"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"
