from __future__ import annotations

import gc
import json
import struct

import pytest
from safetensors import SafetensorError

from hotplate.serving.streaming.header import SafetensorsHeader, data_start, parse_header
from tests.support.streaming.header_fuzzer import library_reads, try_inputs

GOOD = {
    "__metadata__": {"format": "pt"},
    "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "a": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "z": {"dtype": "I64", "shape": [0, 7], "data_offsets": [32, 32]},
    "s": {"dtype": "U8", "shape": [], "data_offsets": [32, 33]},
}
BODY_BYTES = 33


def file_of(header: object, body_bytes: int = BODY_BYTES) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body_bytes)


def parse(file: bytes) -> SafetensorsHeader:
    start = data_start(file[:8], len(file))
    return parse_header(file[8:start], len(file))


def test_a_header_names_tensors_in_the_order_of_their_bytes() -> None:
    header = parse(file_of(dict(reversed(GOOD.items()))))
    start = 8 + len(json.dumps(GOOD))
    assert header.metadata == {"format": "pt"}
    assert list(header.tensors)[:2] == ["b", "a"]
    assert header.tensors["a"] == ("BF16", (4,), start + 24, start + 32)
    assert header.tensors["s"].shape == ()


def tensor(**changes: object) -> dict[str, object]:
    return {"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]} | changes}


@pytest.mark.parametrize(
    ("header", "body_bytes"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"[]", 0, id="not an object"),
        pytest.param(b"{", 0, id="cut"),
        pytest.param(b"{}\0", 0, id="zero bytes after it"),
        pytest.param(b'{"\xff":1}', 0, id="not UTF-8"),
        pytest.param(b'{"\\ud800":' + json.dumps(tensor()["x"]).encode() + b"}", 1, id="surrogate"),
        pytest.param(b"[" * 5000, 0, id="deep"),
        pytest.param({}, 1, id="bytes without a tensor"),
        pytest.param(tensor(), 2, id="bytes left over"),
        pytest.param(tensor(), 0, id="file too short"),
        pytest.param(tensor(dtype="u8"), 1, id="unknown dtype"),
        pytest.param(tensor(dtype=["U8"]), 1, id="dtype of a wrong type"),
        pytest.param(tensor(shape=[-1]), 1, id="negative"),
        pytest.param(tensor(shape=[1.0]), 1, id="float"),
        pytest.param(tensor(shape=[True]), 1, id="bool"),
        pytest.param(tensor(shape=1), 1, id="no list"),
        pytest.param(tensor(shape=[2**64, 0], data_offsets=[0, 0]), 0, id="too large"),
        pytest.param(tensor(shape=[2**63, 4, 0], data_offsets=[0, 0]), 0, id="overflow"),
        pytest.param(tensor(data_offsets=[1, 2]), 2, id="hole"),
        pytest.param(tensor(data_offsets=[1, 0]), 1, id="backwards"),
        pytest.param(tensor(data_offsets=[0, 1, 1]), 1, id="three offsets"),
        pytest.param(tensor() | {"y": tensor()["x"]}, 1, id="overlap"),
        pytest.param({"__metadata__": {"a": 1}}, 0, id="metadata not text"),
        pytest.param({"__metadata__": []}, 0, id="metadata no object"),
        pytest.param(tensor(dtype="F4"), 1, id="ends within a byte"),
        pytest.param(b'{"x":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}', 0, id="minus zero"),
    ],
)
def test_a_bad_header_is_refused_as_by_the_library(header: object, body_bytes: int) -> None:
    file = file_of(header, body_bytes)
    with pytest.raises(SafetensorError):
        parse(file)
    assert library_reads(file) is None


@pytest.mark.parametrize(
    "prefix", [b"", b"\1\0\0", struct.pack("<Q", 100_000_001), struct.pack("<Q", 2**64 - 1)]
)
def test_a_header_longer_than_the_limit_or_the_file_is_refused(prefix: bytes) -> None:
    with pytest.raises(SafetensorError):
        data_start(prefix, 2**63)
    with pytest.raises(SafetensorError):
        data_start(struct.pack("<Q", 10), 17)


def test_what_is_accepted_of_damaged_headers_the_library_accepts_with_the_same_meaning() -> None:
    counts, broken = try_inputs("in the suite", 2000)
    assert not broken
    assert counts["accepted by both"] > 500
    assert counts["refused by both"] > 500
    assert counts["accepted by the library alone"] < 60, "nearly all that it accepts is accepted"


def test_a_long_header_sets_off_no_look_at_all_objects() -> None:
    """Which takes 0.1 s and more where PyTorch and transformers are."""
    rows = {
        f"{n:05}": {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n in range(3000)
    }
    generations: list[int] = []
    file = file_of(rows, 3000)
    gc.collect()
    gc.callbacks.append(seen := lambda phase, about: generations.append(about["generation"]))
    try:
        assert len(parse(file).tensors) == 3000
    finally:
        gc.callbacks.remove(seen)
    assert generations in ([], [0, 0]), "the start and the stop of the one that was due at the end"
    with pytest.raises(SafetensorError):
        parse(file[:-1])
    assert gc.isenabled()
