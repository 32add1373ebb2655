from __future__ import annotations

import gc
import json
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import SafetensorError

from hotplate.serving.streaming.library import stock_safe_open
from hotplate.serving.streaming.reader import StreamedFile, read_header
from hotplate.serving.streaming.source import StreamSource
from tests.support.imported_later import imported_later
from tests.support.streaming.arriving import CHUNK_BYTES, ArrivingBlob, ArrivingFile

if TYPE_CHECKING:
    import torch
else:
    torch = imported_later("torch")
library = imported_later("safetensors.torch")

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int16",
    "uint16",
    "float16",
    "bfloat16",
    "int32",
    "uint32",
    "float32",
    "int64",
    "uint64",
    "float64",
    "complex64",
]
SHAPES: list[tuple[int, ...]] = [(), (0,), (3, 0, 2), (1,), (7,), (5, 9), (2, 3, 4)]


def random_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in (getattr(torch, name) for name in DTYPES):
        for shape in SHAPES:
            size = torch.empty(shape, dtype=dtype).nbytes
            data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
            if dtype is torch.bool:
                data &= 1
            tensors[f"{dtype}{shape}"] = data.view(dtype).reshape(shape)
    return tensors


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    flat = tensor.contiguous().reshape(-1)
    return tensor.dtype, tensor.shape, flat.view(torch.uint8).numpy().tobytes()


def blob_of(path: Path) -> ArrivingBlob:
    return ArrivingBlob(path, path.read_bytes())


def opened(blob: ArrivingBlob, framework: str = "pt", device: Any = "cpu") -> StreamedFile:
    source = StreamSource(str(blob.path), lambda: ArrivingFile(blob))
    return StreamedFile(source, read_header(source), framework, device)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "all.safetensors"
    library.save_file(random_tensors(), path, metadata={"format": "pt", "who": "me"})
    return path


@pytest.fixture
def three(tmp_path: Path) -> ArrivingBlob:
    """Chunk 0 is the header, which has arrived; then a: 1 to 4, b: 5 to 8, c: 9 to 12."""
    file = library.save({name: torch.full((4, CHUNK_BYTES), ord(name)).byte() for name in "abc"})
    start = 8 + int.from_bytes(file[:8], "little")
    header = file[8:start].ljust(CHUNK_BYTES - 8)
    path = tmp_path / "three.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + file[start:])
    blob = blob_of(path)
    blob.release(0)
    return blob


def test_every_dtype_and_shape_is_bit_equal_to_the_stock_library(saved: Path) -> None:
    blob = blob_of(saved)
    blob.release()
    with opened(blob) as ours, stock_safe_open(saved, "pt") as stock:
        assert ours.keys() == stock.keys()
        assert ours.offset_keys() == stock.offset_keys()
        assert ours.metadata() == stock.metadata() == {"format": "pt", "who": "me"}
        for name in stock.keys():  # noqa: SIM118  (no mapping)
            assert bits(ours.get_tensor(name)) == bits(stock.get_tensor(name)), name
            part, stock_part = ours.get_slice(name), stock.get_slice(name)
            assert part.get_dtype() == stock_part.get_dtype()
            assert part.get_shape() == stock_part.get_shape()
        assert list(ours.get_tensors()) == list(stock.get_tensors())


INDEXES: list[Any] = [
    0,
    -1,
    3,
    -4,
    slice(None),
    slice(0, 2),
    slice(1, None),
    slice(-2, None),
    slice(0, -1),
    slice(None, None, 2),
    slice(5, 9),
    slice(2, 1),
    slice(None, None, -1),
    slice(0, 2, 0),
    (slice(None), 1),
    (slice(None), slice(1, 3)),
    (slice(1, 2), slice(0, 3, 2)),
    (0, 0),
    (0, 0, 0),
    ...,
    (..., 0),
    (0, ...),
    None,
    (),
    True,
    (slice(0, 2), [0, 1]),
    "a",
    1.5,
]


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", ["matrix", "scalar", "empty"])
def test_slices_have_the_results_and_errors_of_the_stock_library(
    tmp_path: Path, framework: str, name: str
) -> None:
    path = tmp_path / "slices.safetensors"
    matrix = torch.arange(12.0).reshape(3, 4)
    library.save_file(
        {"matrix": matrix, "scalar": torch.tensor(3.0), "empty": torch.empty(0, 3)}, path
    )
    blob = blob_of(path)
    blob.release()
    ours = opened(blob, framework).get_slice(name)
    stock = stock_safe_open(path, framework).get_slice(name)
    tensors = (torch.tensor([0, 2]), torch.tensor([True, False, True]))
    for index in (*INDEXES, *tensors):
        try:
            expected = stock[index]
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                ours[index]
            assert str(caught.value) == str(error)
        else:
            result = ours[index]
            assert type(result) is type(expected)
            assert result.dtype == expected.dtype
            assert result.shape == expected.shape
            assert result.tolist() == expected.tolist()


def test_a_tensor_is_usable_while_later_chunks_are_held_back(
    three: ArrivingBlob, in_background: Callable[..., Future[Any]]
) -> None:
    file = opened(three)
    three.release(1, 2, 3, 4)
    assert file.get_tensor("a").unique().tolist() == [ord("a")]
    late = in_background(file.get_tensor, "b")
    start, stop = three.wait_until_blocked()
    assert stop - start == 4 * CHUNK_BYTES
    assert not late.done()
    three.release(5, 6, 7)
    assert not late.done()
    three.release(8)
    assert late.result(5).unique().tolist() == [ord("b")]


def test_what_is_in_the_header_never_waits(three: ArrivingBlob) -> None:
    file = opened(three)
    assert file.keys() == ["a", "b", "c"]
    assert file.metadata() is None
    for name in file.keys():  # noqa: SIM118  (no mapping)
        part = file.get_slice(name)
        assert part.get_shape() == [4, CHUNK_BYTES]
        assert part.get_dtype() == "U8"
    assert three.arrived == {0}


def test_a_slice_waits_only_for_its_own_bytes(three: ArrivingBlob) -> None:
    three.release(*range(9, 13))
    part = opened(three).get_slice("c")
    three.arrived -= {9, 10}
    assert part[2:].shape == (2, CHUNK_BYTES)
    assert part[3, :10].unique().tolist() == [ord("c")]
    assert part[..., 0:0].shape == (4, 0)


def test_a_wrong_index_fails_before_any_wait(three: ArrivingBlob) -> None:
    with pytest.raises(IndexError):
        opened(three).get_slice("c")[9]


def test_four_threads_may_wait_at_once(
    three: ArrivingBlob, in_background: Callable[..., Future[Any]]
) -> None:
    file = opened(three)
    waits = {name: in_background(file.get_tensor, name) for name in "cba"}
    for first, name in ((9, "c"), (1, "a"), (5, "b")):
        three.release(*range(first, first + 4))
        assert waits[name].result(5).unique().tolist() == [ord(name)]


def test_bytes_that_cannot_be_had_raise_oserror(
    three: ArrivingBlob, in_background: Callable[..., Future[Any]]
) -> None:
    lost = in_background(opened(three).get_tensor, "c")
    three.wait_until_blocked()
    three.lose()
    with pytest.raises(OSError, match="does not answer"):
        lost.result(5)


def test_writes_in_place_are_seen_by_nobody_else(three: ArrivingBlob) -> None:
    three.release()
    file, other = opened(three), opened(three)
    tensor = file.get_tensor("a")
    tensor.fill_(0)
    assert file.get_tensor("a").unique().tolist() == [0], "one file's views are of one map"
    assert other.get_tensor("a").unique().tolist() == [ord("a")]
    assert three.path.read_bytes() == three.data


def test_tensors_on_the_cpu_are_views_with_a_storage_of_their_own(three: ArrivingBlob) -> None:
    three.release()
    file = opened(three)
    first, again = file.get_tensor("b"), file.get_tensor("b")
    assert first.data_ptr() == again.data_ptr()
    assert first.untyped_storage().nbytes() == first.nbytes


def test_a_tensor_outlives_the_file_and_its_death_ends_the_lease(three: ArrivingBlob) -> None:
    three.release()
    remote = ArrivingFile(three)
    source = StreamSource(str(three.path), lambda: remote)
    with StreamedFile(source, read_header(source), "pt", "cpu") as file:
        part = file.get_slice("c")[1:3].view(torch.int32)
    del file, source
    gc.collect()
    assert not remote.closed
    assert part.unique().tolist() == [0x63636363]
    del part
    gc.collect()
    assert remote.closed


def test_a_closed_file_raises_as_the_stock_one(three: ArrivingBlob) -> None:
    three.release()
    with opened(three) as file:
        part = file.get_slice("a")
    for call in (file.keys, file.offset_keys, file.metadata, file.get_tensors):
        with pytest.raises(SafetensorError, match="File is closed"):
            call()
    assert part[:].shape == (4, CHUNK_BYTES)


@pytest.mark.parametrize("name", ["nope", 5, None, b"a", ["a"], "\ud800"])
def test_a_name_of_no_tensor_raises_what_the_stock_one_raises(
    three: ArrivingBlob, tmp_path: Path, name: Any
) -> None:
    library.save_file({}, tmp_path / "none.safetensors")
    with pytest.raises((SafetensorError, TypeError, UnicodeEncodeError)) as stock:
        stock_safe_open(tmp_path / "none.safetensors", "pt").get_tensor(name)
    for call in (opened(three).get_tensor, opened(three).get_slice):
        with pytest.raises(stock.type) as ours:
            call(name)
        assert str(ours.value) == str(stock.value)


def test_an_unaligned_tensor_is_copied(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "odd": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
            "x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [3, 19]},
        }
    ).encode()
    values = np.arange(4, dtype=np.float32)
    path = tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"123" + values.tobytes())
    blob = blob_of(path)
    blob.release()
    file = opened(blob)
    assert file.get_tensor("x").data_ptr() % 4 == 0
    assert file.get_tensor("x").tolist() == [[0, 1], [2, 3]]
    assert file.get_slice("x")[1].tolist() == [2, 3]


def test_another_device_gets_a_copy(three: ArrivingBlob) -> None:
    three.release()
    assert opened(three, device="meta").get_tensor("a").device.type == "meta"
    assert opened(three, device="meta").get_slice("a")[0].shape == (CHUNK_BYTES,)


def test_numpy_arrays_wait_for_their_own_bytes_only(three: ArrivingBlob) -> None:
    three.release(5, 6, 7, 8)
    array = opened(three, "numpy").get_tensor("b")
    assert isinstance(array, np.ndarray)
    assert np.unique(array).tolist() == [ord("b")]
    array[0] = 0
    assert opened(three, "np").get_slice("b")[0].max() == ord("b")


def test_dtypes_that_only_the_library_knows_are_read_by_it(tmp_path: Path) -> None:
    info = {"x": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}
    text = json.dumps(info).encode()
    path = tmp_path / "six.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"123")
    blob = blob_of(path)
    blob.release()
    with pytest.raises(SafetensorError, match="Dtype not understood"):
        opened(blob).get_tensor("x")


def test_the_header_may_span_chunks_and_is_waited_for(
    tmp_path: Path, in_background: Callable[..., Future[Any]]
) -> None:
    path = tmp_path / "long.safetensors"
    library.save_file({"t" * CHUNK_BYTES + str(n): torch.tensor(n) for n in range(2)}, path)
    blob = blob_of(path)
    header = in_background(lambda: opened(blob).keys())
    assert blob.wait_until_blocked() == (0, 8)
    blob.release(0)
    done = threading.Event()
    header.add_done_callback(lambda _: done.set())
    assert not done.wait(0.05)
    blob.release()
    assert len(header.result(5)) == 2
