"""A big model: pushed, pulled and loaded, and the platform's memory meanwhile.

Then uploads that are interrupted: the client is killed, the control plane is killed, and a client
that resumes sends only the parts that are missing.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import shutil
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.harness.verdict import Verdict
from tests.support.control_plane.cloud import MODEL_MANIFEST, put
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.memory import Watch
from tests.support.patience import until
from tests.support.services.bentos import IMAGE
from tests.support.services.calling import call

FILES = 4
BLOCK_BYTES = 8 << 20
PART_BYTES = 100 << 20
"""What the client cuts a model into."""
MEMORY_LIMIT_BYTES = 300_000_000
BACK_S = 60.0
"""How long a killed control plane may take to come back."""

SUMS = (
    IMAGE
    + """
import hashlib
from pathlib import Path


@bentoml.service(image=image, traffic={"timeout": 600})
class Sums:
    model = bentoml.models.BentoModel("MODEL:v1")

    def __init__(self) -> None:
        self.digests = {}
        for path in sorted(Path(self.model.path).glob("*.safetensors")):
            with path.open("rb") as file:
                self.digests[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()

    @bentoml.api
    def sums(self) -> dict:
        return self.digests
"""
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, default=2.0, help="size of the big model")
    parser.add_argument(
        "--interrupted-gib", type=float, default=0.5, help="size of those that are interrupted"
    )


@dataclass
class Trial:
    """A platform, its client, and what was found."""

    platform: Platform
    laptop: Laptop
    verdict: Verdict = field(default_factory=Verdict)

    @asynccontextmanager
    async def timed(self, what: str, size_bytes: int) -> AsyncIterator[None]:
        began = time.monotonic()
        yield
        lasted_s = time.monotonic() - began
        self.verdict.figures[f"{what}, s"] = lasted_s
        self.verdict.figures[f"{what}, MB/s"] = size_bytes / lasted_s / 1e6


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    platform = Platform(folder / "data")
    try:
        await platform.start()
        trial = Trial(platform, await Laptop.at(folder / "laptop", platform))
        roles = ("control-plane", "agent", "gateway")
        with Watch({role: platform.pid(role) for role in roles}) as watch:
            await big(trial, int(flags.gib * (1 << 30)))
        report(trial, watch)
        await interrupted(trial, int(flags.interrupted_gib * (1 << 30)))
        return trial.verdict
    finally:
        platform.destroy()


async def big(trial: Trial, size_bytes: int) -> None:
    """The stock client pushes and pulls it, a replica loads it: the bytes must be the same."""
    laptop, figures = trial.laptop, trial.verdict.figures
    digests = await make_model(laptop, "big", size_bytes)
    figures["model, bytes"] = size_bytes
    async with trial.timed("push", size_bytes):
        await laptop.bentoml("models", "push", "big:v1")
    bento = await laptop.build("sums", SUMS.replace("MODEL", "big"))
    shutil.rmtree(model_folder(laptop, "big"))
    async with trial.timed("pull", size_bytes):
        await laptop.bentoml("models", "pull", "big:v1")
    pulled = await asyncio.to_thread(digests_of, model_folder(laptop, "big"))
    trial.verdict.expect(pulled == digests, "what was pulled is not what was pushed")
    async with (
        trial.timed("deploy, load and first answer", size_bytes),
        deployed(trial.platform, laptop, bento, "sums") as url,
    ):
        loaded = await call(f"{url}/sums")
    trial.verdict.expect(loaded == digests, "what the replica loaded is not what was pushed")


def report(trial: Trial, watch: Watch) -> None:
    for role, peak in watch.peaks.items():
        for name, size_bytes in peak.items():
            trial.verdict.figures[f"{role}: peak {name}, MB"] = size_bytes / 1e6
    resident_bytes = watch.peaks["control-plane"]["resident"]
    trial.verdict.expect(
        resident_bytes < MEMORY_LIMIT_BYTES,
        f"the control plane took {resident_bytes / 1e6:.0f} MB, 300 MB are allowed",
    )


async def interrupted(trial: Trial, size_bytes: int) -> None:
    """A push breaks off in each way: what arrived is kept, and the next push succeeds."""
    laptop, platform, figures = trial.laptop, trial.platform, trial.verdict.figures
    figures["interrupted: model, bytes"] = size_bytes
    for victim in ("client", "control plane"):
        name = f"broken-{victim.replace(' ', '-')}"
        digests = await make_model(laptop, name, size_bytes)
        client = await laptop.begin("models", "push", f"{name}:v1")
        arrived_bytes = await some_arrived(platform, size_bytes)
        if victim == "client":
            client.kill()
        else:
            await kill_control_plane(platform)
        trial.verdict.expect(
            await client.wait() != 0, f"the push succeeded although the {victim} was killed"
        )
        kept_bytes = parts_bytes(platform)
        trial.verdict.expect(kept_bytes >= arrived_bytes, f"parts were lost with the {victim}")
        figures[f"{victim} killed: MB that had arrived"] = kept_bytes / 1e6
        async with trial.timed(f"{victim} killed: pushed again", size_bytes):
            await laptop.bentoml("models", "push", f"{name}:v1")
        trial.verdict.expect(parts_bytes(platform) == 0, "parts of a finished upload were left")
        await check_pulled(trial, name, digests)
    await resumed(trial, size_bytes)


async def resumed(trial: Trial, size_bytes: int) -> None:
    """A client that keeps its list of parts sends nothing twice, though the server is killed."""
    laptop, platform = trial.laptop, trial.platform
    digests = await make_model(laptop, "resumed", size_bytes)
    tar = laptop.home / "resumed.tar"
    await asyncio.to_thread(pack, model_folder(laptop, "resumed"), tar)
    sent_bytes = 0
    done: list[dict[str, Any]] = []
    async with RoughClient(platform) as rough:
        one = await rough.register("model", "resumed", "v1", MODEL_MANIFEST)
        await rough.call("PATCH", f"{one}/start_upload")
        upload_id = (await rough.call("PATCH", f"{one}/start_multipart_upload"))["upload_id"]
        count = -(-tar.stat().st_size // PART_BYTES)
        for number, part in enumerate(parts_of(tar), 1):
            if number == count // 2 + 1:
                await kill_control_plane(platform)
                await until(platform.healthy, BACK_S)
            body = {"upload_id": upload_id, "part_number": number}
            signed = await rough.call("PATCH", f"{one}/presign_multipart_upload_url", body)
            etag = await put(signed["presigned_upload_url"], part)
            done.append({"part_number": number, "etag": etag})
            sent_bytes += len(part)
        body = {"upload_id": upload_id, "parts": done}
        await rough.call("PATCH", f"{one}/complete_multipart_upload", body)
        await rough.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})
    again_bytes = sent_bytes - tar.stat().st_size
    trial.verdict.figures["resumed over a kill: bytes sent again"] = again_bytes
    trial.verdict.expect(again_bytes == 0, f"{again_bytes} bytes were sent twice")
    await check_pulled(trial, "resumed", digests)


async def check_pulled(trial: Trial, name: str, digests: dict[str, str]) -> None:
    shutil.rmtree(model_folder(trial.laptop, name))
    await trial.laptop.bentoml("models", "pull", f"{name}:v1")
    pulled = await asyncio.to_thread(digests_of, model_folder(trial.laptop, name))
    trial.verdict.expect(pulled == digests, f"{name}: what was pulled is not what was pushed")
    shutil.rmtree(model_folder(trial.laptop, name))


async def make_model(laptop: Laptop, name: str, size_bytes: int) -> dict[str, str]:
    """A model of random bytes in the client's store; the digest of each file."""
    await laptop.python(f"import bentoml\nwith bentoml.models.create('{name}:v1'): pass")
    folder = model_folder(laptop, name)
    await asyncio.to_thread(fill_with_noise, folder, size_bytes)
    return await asyncio.to_thread(digests_of, folder)


def model_folder(laptop: Laptop, name: str) -> Path:
    return laptop.home / "models" / name / "v1"


def fill_with_noise(folder: Path, size_bytes: int) -> None:
    for number in range(FILES):
        with (folder / f"weights-{number}.safetensors").open("wb") as file:
            left_bytes = size_bytes // FILES
            while left_bytes:
                left_bytes -= file.write(os.urandom(min(BLOCK_BYTES, left_bytes)))


def digests_of(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()
    return found


def pack(folder: Path, tar: Path) -> None:
    with tarfile.open(tar, "w:") as writer:
        writer.add(folder, arcname="./")


def parts_of(tar: Path) -> Iterator[bytes]:
    with tar.open("rb") as file:
        while part := file.read(PART_BYTES):
            yield part


def parts_bytes(platform: Platform) -> int:
    """How many bytes have arrived of uploads that are not finished."""
    found = 0
    for path in (platform.data / "blobs" / "parts").rglob("*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size if path.is_file() else 0
    return found


async def some_arrived(platform: Platform, size_bytes: int) -> int:
    """Waits until a part has arrived and more are coming. Returns the bytes that have arrived."""

    async def some() -> bool:
        return 0 < parts_bytes(platform) < size_bytes

    await until(some, BACK_S)
    return parts_bytes(platform)


async def kill_control_plane(platform: Platform) -> None:
    os.kill(platform.pid("control-plane"), 9)
