"""The header of a Safetensors file: where each tensor lies, known before any has arrived.

The format: 8 bytes with the header's length (little endian), that many bytes of JSON, then the
tensors' bytes. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from safetensors import SafetensorError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""The library's own limit."""
_MAX_SIZE = 2**64 - 1
_METADATA = "__metadata__"
_FIELDS = frozenset(("dtype", "shape", "data_offsets"))

DTYPE_BITS = {
    name: bits
    for bits, names in (
        (4, "F4"),
        (6, "F6_E2M3 F6_E3M2"),
        (8, "BOOL U8 I8 F8_E4M3 F8_E4M3FNUZ F8_E5M2 F8_E5M2FNUZ F8_E8M0"),
        (16, "I16 U16 F16 BF16"),
        (32, "I32 U32 F32"),
        (64, "I64 U64 F64 C64"),
    )
    for name in names.split()
}
"""Bits of one element, by the name that the header uses."""


class TensorEntry(NamedTuple):
    """One tensor: where its bytes lie in the file, and what they are."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsHeader(NamedTuple):
    """All tensors of a file, in the order of their bytes."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str] | None


def data_start(prefix: bytes, file_bytes: int) -> int:
    """Where the tensors' bytes begin, from the file's first 8 bytes.

    Raises SafetensorError if the header would be too long, or longer than the file.
    """
    if len(prefix) < LENGTH_BYTES:
        _refuse("header too small")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        _refuse(f"header of {length} bytes is over the limit of {MAX_HEADER_BYTES}")
    if LENGTH_BYTES + length > file_bytes:
        _refuse(f"header of {length} bytes ends after the file's {file_bytes} bytes")
    return LENGTH_BYTES + length


def parse_header(text: bytes, file_bytes: int) -> SafetensorsHeader:
    """Read and check a header; `text` is its JSON, `file_bytes` the size of the whole file.

    Whatever this accepts the library accepts too, with the same meaning. It refuses a few
    things that the library lets pass and no writer makes (names twice, unknown fields).
    Raises SafetensorError.
    """
    with _uncollected():
        fields = _fields(text)
        metadata = _metadata(fields.pop(_METADATA, None))
        start = LENGTH_BYTES + len(text)
        entries = [(name, _entry(name, value, start)) for name, value in fields.items()]
        entries.sort(key=lambda item: (item[1].start, item[1].stop))
        _check_coverage(entries, start, file_bytes)
        return SafetensorsHeader(dict(entries), metadata)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Garbage is not collected meanwhile: thousands of new objects, none of them garbage, would
    set off a look at all that PyTorch and its friends have made, which takes 0.1 s and more."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _refuse(reason: str) -> NoReturn:
    raise SafetensorError(f"Error while deserializing header: {reason}")


def _fields(text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_whole,
            parse_constant=lambda name: _refuse(f"{name} is not JSON"),
        )
    except (ValueError, RecursionError) as exc:
        _refuse(f"invalid JSON in header: {exc}")
    if not isinstance(fields, dict):
        _refuse("the header is not an object")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        _refuse("a name appears twice")
    for name in fields:
        name.encode("utf-8")  # a lone surrogate, which only Python's JSON lets pass
    return fields


def _whole(digits: str) -> Any:
    # A minus makes it no size: not even "-0", which Python alone would read as 0.
    return float(digits) if digits.startswith("-") else int(digits)


def _metadata(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        _refuse(f"{_METADATA} is not an object")
    for text in value.values():
        if not isinstance(text, str):
            _refuse(f"{_METADATA} holds {text!r}, which is not a string")
        _check_text(text)
    return value


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        _refuse(f"invalid text in header: {exc}")


def _entry(name: str, value: Any, start: int) -> TensorEntry:
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        _refuse(f"tensor {name!r} needs exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        _refuse(f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not _sizes(shape):
        _refuse(f"tensor {name!r} has the shape {shape!r}")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(f"tensor {name!r} has the offsets {offsets!r}")
    size = _size_bytes(name, dtype, shape)
    if offsets[1] - offsets[0] != size:
        _refuse(f"tensor {name!r} takes {size} bytes and has the offsets {offsets!r}")
    return TensorEntry(dtype, tuple(shape), start + offsets[0], start + offsets[1])


def _sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and value <= _MAX_SIZE for value in values
    )


def _size_bytes(name: str, dtype: str, shape: list[int]) -> int:
    elements = 1
    for length in shape:  # step by step, since a 0 does not undo an overflow before it
        elements *= length
        if elements > _MAX_SIZE:
            _refuse(f"tensor {name!r} overflows with the shape {shape!r}")
    bits = elements * DTYPE_BITS[dtype]
    if bits > _MAX_SIZE:
        _refuse(f"tensor {name!r} overflows with the shape {shape!r}")
    if bits % 8:
        _refuse(f"tensor {name!r} ends within a byte")
    return bits // 8


def _check_coverage(entries: list[tuple[str, TensorEntry]], start: int, file_bytes: int) -> None:
    end = start
    for name, entry in entries:
        if entry.start != end:
            _refuse(f"tensor {name!r} begins at byte {entry.start} instead of {end}")
        end = entry.stop
    if end != file_bytes:
        _refuse(f"the tensors end at byte {end} of {file_bytes}")


def elements(entry: TensorEntry) -> int:
    """How many elements the tensor has; 1 for a scalar."""
    return math.prod(entry.shape)
