"""Safetensors headers, right and wrong, and what the library makes of each beside what we do.

A header is drawn from a grammar of right ones, then its fields, its JSON and its bytes are damaged;
most are left with one wound, since one that is wrong twice is refused for the first.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from hotplate.serving.streaming.header import (
    DTYPE_BITS,
    SafetensorsHeader,
    data_start,
    parse_header,
)

DTYPES = [*DTYPE_BITS, "F128", "u8", "", "I4"]
TENSOR_NAMES = ("a", "b", "model.layers.0.q_proj.weight", "", "ü", "\0", "😀", "a b")
NAMES = (*TENSOR_NAMES, "__metadata__")
VALUES: tuple[Any, ...] = (
    *("F32", "U8", "", None, True, 1.0, -1, 0, 1, 2**32, 2**63, 2**64 - 1, 2**64, 10**30, 1e400),
    *([], {}, [0], [1], [-1], [2, 3], [0, 4], [4, 0], [0, 0], [2**63, 2, 0], [1.0], [None], [[1]]),
    {"dtype": "U8", "shape": [], "data_offsets": [0, 1]},
)
TOKENS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00"),
    *(b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"-0", b"-", b"0", b"00", b"1e0", b".5"),
    *(b"1.0", b"18446744073709551616", b" ", b"\t", b"\n", b"\r", b"\x0c", b"\0", b"\x7f", b"\xff"),
    *(b"\xef\xbb\xbf", b"\xc2\xa0", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"//", b"/**/", b"'"),
    *(b'"dtype"', b'"shape"', b'"data_offsets"', b'"__metadata__"', b'"x"', b'"U8"', b"[" * 130),
)
BODY_LIMIT_BYTES = 4096


def try_inputs(seed: str, count: int) -> tuple[Counter[str], list[str]]:
    """How often who accepted, and a sentence for each input that shows a difference."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    broken = []
    for _ in range(count):
        file = draw(rng)
        judgement = judge(file)
        counts[_outcome(judgement.ours is not None, judgement.theirs is not None)] += 1
        if not judgement.held:
            broken.append(f"{file!r} is {judgement.ours} for us, {judgement.theirs} for them")
    return counts, broken


def _outcome(ours: bool, theirs: bool) -> str:
    if ours == theirs:
        return "accepted by both" if ours else "refused by both"
    return "accepted by us alone" if ours else "accepted by the library alone"


class Judgement(NamedTuple):
    """One file, seen by both."""

    ours: SafetensorsHeader | None
    """None: refused."""
    theirs: Any
    """The same of the library's reading; None: refused."""

    @property
    def held(self) -> bool:
        """What we accept is accepted by the library, with the same meaning."""
        return self.ours is None or meaning(self.ours) == self.theirs


def meaning(header: SafetensorsHeader) -> Any:
    """Dtype and shape by name, names in the order of their bytes, metadata.

    Offsets follow from these, since a file has neither holes nor overlaps. Tensors without bytes
    have no order: the library's own is another in each run.
    """
    tensors = {name: (one.dtype, list(one.shape)) for name, one in header.tensors.items()}
    return _meaning(tensors, header.metadata)


def _meaning(tensors: dict[str, Any], metadata: dict[str, str] | None) -> Any:
    return tensors, [name for name, (_, shape) in tensors.items() if 0 not in shape], metadata


def judge(file: bytes) -> Judgement:
    """Raises whatever but SafetensorError either of them raises."""
    try:
        start = data_start(file[:8], len(file))
        ours = parse_header(file[8:start], len(file))
    except SafetensorError:
        ours = None
    return Judgement(ours, library_reads(file))


def library_reads(file: bytes) -> Any:
    """`meaning` of the library's reading; None where it refuses."""
    descriptor = os.memfd_create("header")
    try:
        os.write(descriptor, file)
        with safe_open(f"/proc/self/fd/{descriptor}", "np") as opened:
            parts = {name: opened.get_slice(name) for name in opened.offset_keys()}
            tensors = {name: (one.get_dtype(), one.get_shape()) for name, one in parts.items()}
            return _meaning(tensors, opened.metadata())
    except SafetensorError:
        return None
    finally:
        os.close(descriptor)


def draw(rng: random.Random) -> bytes:
    """A file: length, header, body."""
    header, body_bytes = _header(rng)
    wound = rng.randrange(10)
    if wound < 3 and header:
        _change_field(rng, header)
    text = bytearray(json.dumps(header, ensure_ascii=rng.random() < 0.5).encode())
    if wound == 3:
        body_bytes = max(0, body_bytes + rng.choice((-1, 1, 8, 4096)))
    elif wound in (4, 5):
        _change_text(rng, text)
    text += b" " * rng.choice((0, 0, 0, 1, 7))
    file = bytearray(len(text).to_bytes(8, "little") + text + bytes(body_bytes))
    if wound == 6:
        file[rng.randrange(min(len(file), 10))] = rng.randrange(256)
    elif wound == 7 and rng.random() < 0.3:
        del file[rng.randrange(len(file)) :]
    return bytes(file)


def _header(rng: random.Random) -> tuple[dict[str, Any], int]:
    """A right one, mostly, and the bytes that its tensors take."""
    header: dict[str, Any] = {}
    if rng.random() < 0.4:
        header["__metadata__"] = {rng.choice(NAMES): rng.choice(NAMES) for _ in range(2)}
    end = 0
    for name in rng.sample(NAMES if rng.random() < 0.1 else TENSOR_NAMES, rng.randrange(5)):
        dtype = rng.choice(DTYPES if rng.random() < 0.1 else list(DTYPE_BITS))
        shape = [rng.choice((0, 1, 1, 2, 3, 4, 8)) for _ in range(rng.randrange(4))]
        bits = DTYPE_BITS.get(dtype, 8)
        for length in shape:
            bits *= length
        stop = min(end + bits // 8, BODY_LIMIT_BYTES)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, stop]}
        end = stop
    names = list(header)
    rng.shuffle(names)
    return {name: header[name] for name in names}, end


def _change_field(rng: random.Random, header: dict[str, Any]) -> None:
    name = rng.choice(list(header))
    fields = header[name]
    wound = rng.randrange(6)
    if wound == 0:
        header[name] = rng.choice(VALUES)
    elif wound == 1 and fields:
        del fields[rng.choice(list(fields))]
    elif wound == 2:
        fields[rng.choice(("x", "dtype", "shape", "Dtype", ""))] = rng.choice(VALUES)
    elif "shape" in fields and wound < 5:
        numbers = fields[rng.choice(("shape", "data_offsets"))]
        at = rng.randrange(len(numbers) + 1)
        numbers[at : at + rng.randrange(2)] = [rng.choice(VALUES)] * rng.randrange(2)
    elif fields:
        fields[rng.choice(list(fields))] = rng.choice(VALUES)


def _change_text(rng: random.Random, text: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        token = rng.choice(TOKENS)
        wound = rng.randrange(4)
        if wound == 0:
            text[at:at] = token
        elif wound == 1:
            text[at : at + len(token)] = token
        elif wound == 2:
            del text[at : at + rng.randrange(1, 9)]
        else:  # something twice
            other = at + rng.randrange(40)
            text[at:at] = text[at:other]
