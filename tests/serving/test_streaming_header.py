from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from hotplate.serving.streaming.header import Header, data_start, parse_header

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


def parse(file: bytes) -> Header:
    start = data_start(file[:8], len(file))
    return parse_header(file[8:start], len(file))


def the_library_reads(folder: Path, file: bytes) -> object:
    path = folder / "one.safetensors"
    path.write_bytes(file)
    with safe_open(path, "np") as opened:
        shapes = {
            name: (opened.get_slice(name).get_dtype(), opened.get_slice(name).get_shape())
            for name in opened.offset_keys()
        }
        return shapes, opened.metadata()


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
def test_a_bad_header_is_refused_as_by_the_library(
    tmp_path: Path, header: object, body_bytes: int
) -> None:
    file = file_of(header, body_bytes)
    with pytest.raises(SafetensorError):
        parse(file)
    with pytest.raises(SafetensorError):
        the_library_reads(tmp_path, file)


@pytest.mark.parametrize(
    "prefix", [b"", b"\1\0\0", struct.pack("<Q", 100_000_001), struct.pack("<Q", 2**64 - 1)]
)
def test_a_header_longer_than_the_limit_or_the_file_is_refused(prefix: bytes) -> None:
    with pytest.raises(SafetensorError):
        data_start(prefix, 2**63)
    with pytest.raises(SafetensorError):
        data_start(struct.pack("<Q", 10), 17)


def mutated(rng: random.Random) -> bytes:
    """A good file with one to three things changed: fields, bytes of the text, or the length."""
    header = json.loads(json.dumps(GOOD))
    for _ in range(rng.randint(0, 2)):
        fields = header[rng.choice([name for name in GOOD if name != "__metadata__"])]
        if fields:
            key = rng.choice(list(fields))
            fields[key] = rng.choice(
                ["F32", "U8", [], [0], [2, 3], [3, 2], [32, 33], [0, 24], [24, 32], [4], None, -1]
            )
    text = bytearray(json.dumps(header).encode() + b" " * rng.randint(0, 3))
    for _ in range(rng.choice([0, 0, 1, 2])):
        text[rng.randrange(len(text))] = rng.choice(b'0123456789{}[],:" \\"-e.\xff')
    file = bytearray(file_of(bytes(text)))
    if rng.random() < 0.1:
        file[0] = rng.randrange(256)
    return bytes(file)


def test_what_is_accepted_of_mutated_headers_the_library_accepts_with_the_same_meaning(
    tmp_path: Path,
) -> None:
    rng = random.Random(7)
    accepted = refused = stricter = 0
    for _ in range(800):
        file = mutated(rng)
        try:
            header = parse(file)
        except SafetensorError:
            refused += 1
            try:
                the_library_reads(tmp_path, file)
            except SafetensorError:
                continue
            stricter += 1
            continue
        accepted += 1
        shapes = {name: (e.dtype, list(e.shape)) for name, e in header.tensors.items()}
        assert (shapes, header.metadata) == the_library_reads(tmp_path, file)
    assert accepted > 100
    assert refused > 100
    assert stricter < 20, "nearly all that the library accepts is accepted"
