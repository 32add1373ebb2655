"""Tensors on their way to a device, with an engine that really copies."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hotplate.serving.streaming import staging
from hotplate.serving.streaming.device import Device, device_for
from hotplate.serving.streaming.header import TensorEntry
from hotplate.serving.streaming.reader import StreamedFile, read_header
from hotplate.serving.streaming.sharding import Plan, shard
from hotplate.serving.streaming.source import StreamSource
from hotplate.serving.streaming.staging import Ring, Staging, runs
from tests.serving.streaming.test_reader import bits, random_tensors
from tests.support.imported_later import imported_later
from tests.support.streaming.arriving import CHUNK_BYTES, ArrivingBlob, ArrivingFile
from tests.support.streaming.slow_device import SlowDevice

if TYPE_CHECKING:
    import torch
else:
    torch = imported_later("torch")
library = imported_later("safetensors.torch")

SLOT_BYTES = 4 * CHUNK_BYTES


@pytest.fixture
def device() -> Iterator[SlowDevice]:
    device = SlowDevice()
    yield device
    device.close()


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture(autouse=True)
def small_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four slots of four chunks, so that small files need many."""
    monkeypatch.setattr(staging, "ring_of", lambda device: Ring(device, 4, SLOT_BYTES))


def file_of(
    path: Path, tensors: dict[str, torch.Tensor], device: Device, ring: Ring | None = None
) -> StreamedFile:
    """All of it has arrived."""
    library.save_file(tensors, path)
    return arriving(path, device, ring=ring)[1]


def arriving(
    path: Path, device: Any, first: int | None = None, ring: Ring | None = None
) -> tuple[ArrivingBlob, StreamedFile]:
    """The first chunks, by default all, have arrived; it goes through the `ring`, if one is given,
    and else through its own."""
    blob = ArrivingBlob(path, path.read_bytes())
    blob.release(*(range(first) if first is not None else ()))
    source = StreamSource(str(path), lambda: ArrivingFile(blob))
    staging = None if ring is None else Staging(device, ring)
    return blob, StreamedFile(source, read_header(source), "pt", device, staging)


def odd_file(path: Path) -> dict[str, torch.Tensor]:
    """Tensors that lie at odd addresses; the library's writer would have sorted them."""
    import json
    import struct

    values = {
        "byte": torch.arange(3, dtype=torch.uint8),
        "wide": torch.arange(24, dtype=torch.float64).reshape(4, 6),
        "half": torch.arange(5, dtype=torch.bfloat16),
    }
    dtypes = {"byte": "U8", "wide": "F64", "half": "BF16"}
    header, body = {}, b""
    for name, value in values.items():
        data = bits(value)[2]
        span = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtypes[name], "shape": list(value.shape), "data_offsets": span}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return values


def test_every_dtype_and_shape_arrives_bit_equal(tmp_path: Path, device: SlowDevice) -> None:
    tensors = random_tensors() | {"large": torch.randn(5 * SLOT_BYTES + 3)}
    file = file_of(tmp_path / "all.safetensors", tensors, device)
    got = dict(file.stream(Plan()))
    assert list(got) == file.offset_keys()
    for name, tensor in tensors.items():
        assert bits(got[name]) == bits(tensor), name
        assert bits(file.get_tensor(name)) == bits(tensor), name
    assert device.pinned_bytes <= 4 * SLOT_BYTES


def test_neighbours_share_one_copy(tmp_path: Path, device: SlowDevice) -> None:
    tensors = {f"{number:03}": torch.full((64,), float(number)) for number in range(100)}
    file = file_of(tmp_path / "small.safetensors", tensors, device)
    for name, tensor in file.stream(Plan()):
        assert tensor.unique().tolist() == [float(name)]
    assert len(device.copied) == -(-100 * 256 // SLOT_BYTES)


def test_unaligned_tensors_are_aligned_on_the_device(tmp_path: Path, device: SlowDevice) -> None:
    values = odd_file(tmp_path / "odd.safetensors")
    for where in (device, "cpu"):
        file = arriving(tmp_path / "odd.safetensors", where)[1]
        for name, tensor in file.stream(Plan()):
            assert tensor.data_ptr() % tensor.element_size() == 0
            assert bits(tensor) == bits(values[name])
        for index in (1, slice(1, 3), (..., 2), (slice(0, 4, 2), slice(1, 3)), (None, 0), -1):
            assert bits(file.get_slice("wide")[index]) == bits(values["wide"][index])
        assert bits(file.get_slice("wide")[[0, 2]]) == bits(values["wide"][[0, 2]])
        with pytest.raises(IndexError, match="too many indices"):
            file.get_slice("wide")[0, 0, 0]


def test_a_plan_brings_parts_of_any_dimension(tmp_path: Path, device: SlowDevice) -> None:
    tensors = {"q": torch.randn(8, 300, 7), "o": torch.randn(8, 300, 7), "n": torch.randn(5)}
    file = file_of(tmp_path / "plan.safetensors", tensors, device)
    plan = Plan({"q": shard(0, 1, 4), "o": shard(1, 2, 3), "n": (0, 2, 2)})
    got = dict(file.stream(plan))
    assert bits(got["q"]) == bits(tensors["q"][2:4])
    assert bits(got["o"]) == bits(tensors["o"][:, 200:].contiguous())
    assert got["n"].shape == (0,)


def test_a_slot_is_not_filled_again_before_its_copy_is_done(
    tmp_path: Path, device: SlowDevice, in_background: Callable[..., Future[Any]]
) -> None:
    """With the engine halted every slot is filled and asked to be copied, and no more."""
    tensor = torch.randn(20 * SLOT_BYTES // 4)
    file = file_of(tmp_path / "large.safetensors", {"x": tensor}, device)
    device.halt()
    arrived = in_background(file.get_tensor, "x")
    device.wait_for_copies(4)
    with device.asked:
        assert not device.asked.wait_for(lambda: len(device.copied) > 4, 0.1)
    device.go()
    assert bits(arrived.result(5)) == bits(tensor)
    assert len(device.copied) == 20


def test_what_has_arrived_is_copied_while_the_rest_is_held_back(
    tmp_path: Path, device: SlowDevice, in_background: Callable[..., Future[Any]]
) -> None:
    path = tmp_path / "held.safetensors"
    library.save_file(
        {name: torch.full((4, CHUNK_BYTES), ord(name)).byte() for name in "abc"}, path
    )
    blob, file = arriving(path, device, first=6)
    taken = file.stream(Plan())
    assert next(taken)[1].unique().tolist() == [ord("a")]
    late = in_background(next, taken)
    blob.wait_until_blocked()
    assert not late.done()
    blob.release()
    assert late.result(5)[1].unique().tolist() == [ord("b")]


class InMemory:
    """Bytes that are there, and know who reads them."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)
        self.read = 0
        self.lent = 0

    def wait(self, start: int, stop: int) -> None: ...

    def read_into(self, start: int, view: memoryview) -> None:
        self.read += len(view)
        target = (ctypes.c_ubyte * len(view)).from_buffer(view)
        ctypes.memmove(target, bytes(self._data[start : start + len(view)]), len(view))

    def arrived(self, start: int, stop: int) -> bool:
        return stop <= len(self._data) // 2

    def memory(self, start: int, stop: int) -> memoryview:
        self.lent += stop - start
        return memoryview(self._data)[start:stop]


@pytest.mark.parametrize("cores", [0, 1])
def test_what_has_arrived_is_copied_by_the_threads_of_pytorch_if_it_has_as_many(
    device: SlowDevice, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: cores * staging.THREADS)
    data = InMemory(bytes(range(256)) * (8 * SLOT_BYTES // 256))
    landed = Staging(device).land(data, 0, 8 * SLOT_BYTES).memory()
    assert bytes(landed.numpy()) == bytes(range(256)) * (8 * SLOT_BYTES // 256)
    assert (data.lent, data.read) == (4 * cores * SLOT_BYTES, (8 - 4 * cores) * SLOT_BYTES)


def test_one_file_that_stands_still_holds_up_no_other(tmp_path: Path, device: SlowDevice) -> None:
    ring = Ring(device, 4, SLOT_BYTES)
    path = tmp_path / "stuck.safetensors"
    library.save_file({"x": torch.zeros(20 * SLOT_BYTES, dtype=torch.uint8)}, path)
    blob, stuck = arriving(path, device, first=1, ring=ring)
    waiting = threading.Thread(target=lambda: next(stuck.stream(Plan())))
    waiting.start()
    blob.wait_until_blocked()
    other = file_of(tmp_path / "other.safetensors", {"x": torch.arange(9)}, device, ring)
    assert other.get_tensor("x").tolist() == list(range(9))
    blob.release()
    waiting.join()


def test_bytes_that_cannot_be_had_raise_and_leave_every_slot(
    tmp_path: Path, device: SlowDevice, in_background: Callable[..., Future[Any]]
) -> None:
    ring = Ring(device, 4, SLOT_BYTES)
    path = tmp_path / "lost.safetensors"
    library.save_file({"x": torch.zeros(20 * SLOT_BYTES, dtype=torch.uint8)}, path)
    blob, file = arriving(path, device, first=6, ring=ring)
    lost = in_background(list, file.stream(Plan()))
    blob.wait_until_blocked()
    blob.lose()
    with pytest.raises(OSError, match="does not answer"):
        lost.result(5)
    assert [ring.take() for _ in range(4)]


def test_little_is_brought_ahead_of_who_takes_it_and_nothing_after_they_left(
    tmp_path: Path, device: SlowDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.serving.streaming.pipeline.AHEAD_BYTES", 3 * SLOT_BYTES)
    rows = {f"{n:02}": torch.zeros(SLOT_BYTES, dtype=torch.uint8) for n in range(40)}
    taken = file_of(tmp_path / "rows.safetensors", rows, device).stream(Plan())
    next(taken)
    device.wait_for_copies(4)
    with device.asked:
        assert not device.asked.wait_for(lambda: len(device.copied) > 4, 0.05)
    taken.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert len(device.copied) == 4


def test_runs_are_near_aligned_and_small() -> None:
    class Data:
        def wait(self, start: int, stop: int) -> None: ...
        def read_into(self, start: int, view: memoryview) -> None: ...

    one, two = Data(), Data()
    spans = [(0, 16), (16, 48), (48, 49), (49, 60), (60, 60), (60, 200), (208, 216), (216, 232)]
    tensors = [(str(at), TensorEntry("U8", (b - a,), a, b), one) for at, (a, b) in enumerate(spans)]
    tensors.append(("other", TensorEntry("U8", (1,), 232, 233), two))
    cut = [[name for name, _ in run.entries] for run in runs(tensors, 64)]
    assert cut == [["0", "1", "2"], ["3"], ["4"], ["5"], ["6"], ["7"], ["other"]]
    assert next((run.start, run.stop) for run in runs(tensors, 64)) == (0, 49)


def test_devices_by_name() -> None:
    assert device_for("cpu") is device_for(None) is device_for("meta") is None
    assert isinstance(SlowDevice(), Device)
    if not torch.cuda.is_available():
        assert device_for(0) is None


def test_a_ring_is_filled_before_it_is_needed_and_not_twice(device: SlowDevice) -> None:
    ring = Ring(device, 4, SLOT_BYTES)
    ring.fill()
    assert device.pinned_bytes == 4 * SLOT_BYTES
    for _ in range(4):
        ring.take()
    ring.fill()
    assert device.pinned_bytes == 4 * SLOT_BYTES


def test_a_ring_is_made_where_safetensors_is_not() -> None:
    """As a standby on a GPU does in an environment that has torch only."""
    code = (
        "import sys; sys.modules['safetensors'] = None; import hotplate.serving.streaming.staging"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
