"""A model of 5 GiB pushed in parts, cut off half way: memory, rate beside the disk's, and the rest.

`hotplate control-plane` is killed with SIGKILL when half of the parts are there, and started again;
the push goes on with the parts that are missing. The disk's rate is that of plain sequential writes
of the same bytes in the same folder, ten parts and one fsync before each ten parts that are pushed:
a disk's rate changes within seconds. A part is acknowledged after its fsync. Then the platform
unpacks them all, which reads and writes every byte once more.
"""

from __future__ import annotations

import asyncio
import os
import tarfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from hotplate.platform.processes.data_dir import DataDir
from loadtests.harness.child_process import START_S, BenchmarkFailed, Child, module, running
from loadtests.harness.installation import TOKEN
from loadtests.harness.report import column
from tests.support.control_plane.cloud import MODEL_MANIFEST
from tests.support.memory import Watch
from tests.support.patience import until
from tests.support.ports import free_port

SIZE_BYTES, QUICK_BYTES = 5 << 30, 1 << 30
PART_BYTES, AT_ONCE = 100 << 20, 10
"""The stock client's parts, and its threads."""
PIECE_BYTES = 1 << 20
UNPACK_S = 600.0
REPOSITORIES = "/api/v1/model_repositories"
ONE = f"{REPOSITORIES}/big/models/v1"


@dataclass(frozen=True)
class Line:
    what: str
    mib: float | None = column("MiB")
    seconds: float | None = column("s", 1)
    mib_per_s: float | None = column("MiB/s", 1)
    of_disk: float | None = column("x the disk's", 2)
    resident_mib: float | None = column("peak RSS, MiB")
    anonymous_mib: float | None = column("of it anonymous")


class Model:
    """The tar of a model, of which any part is made when it is sent."""

    def __init__(self, size_bytes: int) -> None:
        self._block = os.urandom(64 << 20)
        self._size_bytes = size_bytes
        described = b"name: big\nversion: v1\n"
        self._head = _header("./model.yaml", len(described)) + described.ljust(512, b"\0")
        self._head += _header("./weights.bin", size_bytes)

    @property
    def parts(self) -> range:
        return range(1, -(-self._tar_bytes // PART_BYTES) + 1)

    def part_bytes(self, number: int) -> int:
        return min(PART_BYTES, self._tar_bytes - (number - 1) * PART_BYTES)

    def pieces(self, number: int) -> Iterator[bytes]:
        start = (number - 1) * PART_BYTES
        end = start + self.part_bytes(number)
        while start < end:
            piece = self._read(start, min(PIECE_BYTES, end - start))
            yield piece
            start += len(piece)

    @property
    def _tar_bytes(self) -> int:
        return len(self._head) + self._size_bytes + 1024

    def _read(self, start: int, most: int) -> bytes:
        """Some of the bytes from there on."""
        if start < len(self._head):
            return self._head[start : start + most]
        left = len(self._head) + self._size_bytes - start
        if left <= 0:
            return bytes(most)
        at = start % len(self._block)
        return self._block[at : at + min(most, left)]


@dataclass
class Disk:
    """Where both write, and what plain writes of it have taken."""

    file: Path
    size_bytes: int = 0
    seconds: float = 0.0

    async def write(self, model: Model, numbers: Sequence[int]) -> None:
        """Write these parts as one file."""
        self.seconds += await asyncio.to_thread(self._written_s, model, numbers)
        self.size_bytes += sum(map(model.part_bytes, numbers))

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size_bytes / self.seconds

    def _written_s(self, model: Model, numbers: Sequence[int]) -> float:
        os.sync()
        began = time.perf_counter()
        with self.file.open("wb", buffering=0) as opened:
            for number in numbers:
                for piece in model.pieces(number):
                    opened.write(piece)
            os.fsync(opened.fileno())
        took_s = time.perf_counter() - began
        self.file.unlink()
        os.sync()
        return took_s


@dataclass
class Sent:
    """What a control plane took, in which time, and the memory that it had."""

    parts: dict[int, str] = field(default_factory=dict)
    """The etags of what it has acknowledged, by number."""
    seconds: float = 0.0
    peaks: dict[str, int] | None = None

    def line(self, what: str, size_bytes: int, disk: Disk) -> Line:
        rate = size_bytes / self.seconds
        line = Line(what, size_bytes / 2**20, self.seconds, rate / 2**20, rate / disk.rate)
        if self.peaks is None:
            return line
        resident, anonymous = self.peaks["resident"], self.peaks["anonymous"]
        return replace(line, resident_mib=resident / 2**20, anonymous_mib=anonymous / 2**20)


async def measure(folder: Path, quick: bool) -> Sequence[Line]:
    model = Model(QUICK_BYTES if quick else SIZE_BYTES)
    size_bytes = sum(map(model.part_bytes, model.parts))
    data = DataDir.at(folder / "data")
    data.secret("admin-token", TOKEN)
    disk = Disk(folder / "plain")
    first = await _cut_off(data, model, disk, folder / "first.log")
    second, unpacked = await _finished(data, model, disk, set(first.parts), folder / "second.log")
    arrived, rest = (sum(map(model.part_bytes, sent.parts)) for sent in (first, second))
    whole = Sent(seconds=first.seconds + second.seconds)
    return [
        Sent(seconds=disk.seconds).line("the disk", disk.size_bytes, disk),
        first.line(f"{len(first.parts)} parts, until the kill", arrived, disk),
        second.line(f"the other {len(second.parts)} parts", rest, disk),
        whole.line("all parts", arrived + rest, disk),
        unpacked.line("unpacking", size_bytes, disk),
    ]


async def _cut_off(data: DataDir, model: Model, disk: Disk, log: Path) -> Sent:
    """Push until half of the parts have arrived, and kill the control plane."""
    async with _control_plane(data, log) as (process, http):
        repository = {"name": "big", "description": ""}
        await _call(http, "POST", REPOSITORIES, repository)
        draft = {"version": "v1", "manifest": MODEL_MANIFEST, "build_at": "", "labels": []}
        await _call(http, "POST", f"{REPOSITORIES}/big/models", draft | {"description": ""})
        upload, there = await _begun(http)
        if there:
            raise BenchmarkFailed(f"parts {sorted(there)} are there before any was sent")
        sent, enough = Sent(), -(-len(model.parts) // 2)
        with Watch({"it": process.pid}) as watch:
            for numbers in _batches(model.parts):
                await disk.write(model, numbers)
                began = time.perf_counter()
                sending = asyncio.create_task(_send(http, model, upload, numbers, sent.parts))
                await _until_over(sending, sent, enough)
                sent.seconds += time.perf_counter() - began
                if len(sent.parts) >= enough:
                    break
            sent.peaks = dict(watch.peaks["it"])
        process.kill()
        await asyncio.gather(sending, return_exceptions=True)
        return sent


async def _finished(
    data: DataDir, model: Model, disk: Disk, acknowledged: set[int], log: Path
) -> tuple[Sent, Sent]:
    """Push what is missing, and wait until all is unpacked."""
    async with _control_plane(data, log) as (process, http):
        upload, there = await _begun(http)
        if missing := acknowledged - there.keys():
            raise BenchmarkFailed(f"parts {sorted(missing)} were acknowledged and are not there")
        second, unpacked = Sent(), Sent()
        with Watch({"it": process.pid}) as watch:
            for numbers in _batches([each for each in model.parts if each not in there]):
                await disk.write(model, numbers)
                began = time.perf_counter()
                await _send(http, model, upload, numbers, second.parts)
                second.seconds += time.perf_counter() - began
            second.peaks = dict(watch.peaks["it"])
            parts = sorted((there | second.parts).items())
            listed = [{"part_number": number, "etag": etag} for number, etag in parts]
            done = {"upload_id": upload, "parts": listed}
            began = time.perf_counter()
            await _call(http, "PATCH", f"{ONE}/complete_multipart_upload", done)

            async def is_unpacked() -> bool:
                return bool((await _call(http, "GET", ONE))["upload_status"] == "success")

            await until(is_unpacked, UNPACK_S)
            unpacked.seconds = time.perf_counter() - began
        unpacked.peaks = watch.peaks["it"]
        return second, unpacked


async def _until_over(sending: asyncio.Task[None], sent: Sent, enough: int) -> None:
    await until(lambda: sending.done() or len(sent.parts) >= enough, UNPACK_S)


def _batches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), AT_ONCE):
        yield numbers[start : start + AT_ONCE]


async def _begun(http: aiohttp.ClientSession) -> tuple[str, dict[int, str]]:
    """The upload's id, and the etags of the parts that have arrived."""
    await _call(http, "PATCH", f"{ONE}/start_upload")
    begun = await _call(http, "PATCH", f"{ONE}/start_multipart_upload")
    return begun["upload_id"], {part["part_number"]: part["etag"] for part in begun["parts"]}


async def _send(
    http: aiohttp.ClientSession,
    model: Model,
    upload: str,
    numbers: Iterable[int],
    sent: dict[int, str],
) -> None:
    waiting = list(reversed(list(numbers)))

    async def work() -> None:
        while waiting:
            number = waiting.pop()
            body = {"upload_id": upload, "part_number": number}
            signed = await _call(http, "PATCH", f"{ONE}/presign_multipart_upload_url", body)
            headers = {"Content-Length": str(model.part_bytes(number))}
            url, content = signed["presigned_upload_url"], _content(model, number)
            async with http.put(url, data=content, headers=headers) as answer:
                if answer.status != 200:
                    raise BenchmarkFailed(f"part {number}: {await answer.text()}")
                sent[number] = answer.headers["ETag"].strip('"')

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def _content(model: Model, number: int) -> AsyncIterator[bytes]:
    for piece in model.pieces(number):
        yield piece


async def _call(http: aiohttp.ClientSession, method: str, path: str, body: object = None) -> Any:
    async with http.request(method, path, json=body) as answer:
        if answer.status != 200:
            raise BenchmarkFailed(f"{method} {path}: {await answer.text()}")
        return await answer.json()


@asynccontextmanager
async def _control_plane(
    data: DataDir, log: Path
) -> AsyncIterator[tuple[Child, aiohttp.ClientSession]]:
    port = free_port()
    command = (
        "control-plane",
        "--data",
        data.root,
        "--port",
        port,
        "--agent",
        "http://127.0.0.1:1",
    )
    async with running(*module("hotplate.platform.cli", *command), log=log) as process:
        await until(lambda: f":{port}; " in process.log_text, START_S)
        session = aiohttp.ClientSession(
            f"http://127.0.0.1:{port}",
            headers={"X-YATAI-API-TOKEN": TOKEN},
            timeout=aiohttp.ClientTimeout(None),
        )
        async with session as http:
            yield process, http


def _header(name: str, size_bytes: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    return info.tobuf(tarfile.PAX_FORMAT)
