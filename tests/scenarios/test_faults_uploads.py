"""Uploads that are hostile, broken or incomplete: refused, and repeated with success."""

from __future__ import annotations

import asyncio
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.control_plane.cloud import MODEL_MANIFEST, Refused, tar_of
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.gateway.callers import Caller
from tests.support.memory import memory_bytes
from tests.support.patience import until
from tests.support.replica.bentos import write_model

pytestmark = pytest.mark.usefixtures("unharmed")


def member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


HOSTILE = {
    "a way out": (member("../../outside", tarfile.REGTYPE), "outside"),
    "an absolute path": (member("/etc/outside", tarfile.REGTYPE), "outside"),
    "a symbolic link": (member("./link", tarfile.SYMTYPE, "/etc/passwd"), "link"),
    "a hard link": (member("./link", tarfile.LNKTYPE, "../../passwd"), "link"),
    "a device": (member("./device", tarfile.CHRTYPE), "device"),
    "a pipe": (member("./pipe", tarfile.FIFOTYPE), "pipe"),
}


@pytest.mark.parametrize(("extra", "named"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_tar_is_refused_and_the_version_stays_unusable(
    platform: AnyPlatform, rough: RoughClient, bento: Bento, extra: tarfile.TarInfo, named: str
) -> None:
    hostile = bento.changed(f"hostile-{extra.type.decode()}{len(extra.name)}")
    one = await rough.register("bento", hostile.name, hostile.version, hostile.manifest)
    refused = await rough.refusal("PUT", f"{one}/upload", data=hostile.tar(extra))
    assert refused.status == 400
    assert named in refused.message
    # `rglob` minds what replicas remove meanwhile, `os.walk` does not.
    if isinstance(platform, Platform):
        names = [{*folders, *files} for _, folders, files in os.walk(platform.data.parent)]
        assert not any("outside" in each for each in names)
    version = await rough.call("GET", one)
    assert version["upload_status"] == "failed"
    assert version["upload_finished_reason"] == refused.message
    body = {"name": "hostile", "bento": hostile.tag}
    refused = await rough.refusal("POST", "/api/v2/deployments", body)
    assert f"bento '{hostile.tag}' is not uploaded" in refused.message


async def test_a_tar_without_its_description_is_refused(rough: RoughClient, bento: Bento) -> None:
    bare = bento.changed("bare")
    one = await rough.register("bento", bare.name, bare.version, bare.manifest)
    refused = await rough.refusal("PUT", f"{one}/upload", data=bare.tar(without="bento.yaml"))
    assert (refused.status, "no bento.yaml" in refused.message) == (400, True)
    other = bento.changed("another").tar()
    refused = await rough.refusal("PUT", f"{one}/upload", data=other)
    assert "the tar's bento.yaml is of 'another:v1'" in refused.message


@pytest.mark.client
async def test_an_upload_that_is_cut_in_the_middle_can_be_sent_again(
    platform: AnyPlatform, laptop: Laptop, rough: RoughClient, bento: Bento
) -> None:
    cut = bento.changed("cut")
    one = await rough.register("bento", cut.name, cut.version, cut.manifest)
    padded = cut.changed("cut", {"src/padding": "x" * (3 << 20)})
    await rough.send_half(f"{one}/upload", padded.tar())

    async def failed() -> bool:
        return bool((await rough.call("GET", one))["upload_status"] == "failed")

    await until(failed)
    assert "send it again" in (await rough.call("GET", one))["upload_finished_reason"]
    if isinstance(platform, Platform):
        parts = (platform.data / "blobs" / "parts").glob("*")
        halves = [path.name for path in parts if not path.name.startswith("task-")]
        assert not halves, "no half of it is kept"
    assert (await rough.refusal("POST", "/api/v2/deployments", {"bento": cut.tag})).status == 400

    cut.write(laptop.home / "bentos" / cut.name / cut.version)
    assert "Successfully pushed" in await laptop.bentoml("push", cut.tag)
    assert (await rough.call("GET", one))["upload_status"] == "success"


async def test_a_model_is_not_complete_before_each_part_is_the_one_that_was_sent(
    rough: RoughClient,
) -> None:
    whole = tar_of({"model.yaml": "name: parts\nversion: v1\n", "weights.bin": b"w" * 9000})
    one = await rough.register("model", "parts", "v1", MODEL_MANIFEST)
    upload_id, done = await rough.send_parts(one, [whole[:4000], whole[4000:8000], whole[8000:]])

    async def complete(parts: list[dict[str, object]]) -> Refused:
        body = {"upload_id": upload_id, "parts": parts}
        return await rough.refusal("PATCH", f"{one}/complete_multipart_upload", body)

    assert "part 2 is missing" in (await complete([done[0], done[2]])).message
    wrong = {**done[1], "etag": "0123456789abcdef"}
    assert (
        "part 2 was replaced; send it again" in (await complete([done[0], wrong, done[2]])).message
    )
    beyond = {"part_number": 4, "etag": "x"}
    assert "part 4 has not arrived" in (await complete([*done, beyond])).message
    assert "the list is empty" in (await complete([])).message
    assert (await rough.call("GET", one))["upload_status"] == "uploading"

    body = {"upload_id": upload_id, "parts": done}
    await rough.call("PATCH", f"{one}/complete_multipart_upload", body)
    finished = await rough.call("PATCH", f"{one}/finish_upload", {"status": "success"})
    assert finished["upload_status"] == "success"


async def test_a_bento_waits_for_its_models_and_says_which(
    platform: AnyPlatform, rough: RoughClient, bento: Bento, tmp_path: Path
) -> None:
    tag = await rough.push(bento.needing("hungry", "sugar:v1"))
    body = {"name": "hungry", "bento": tag}
    refused = await rough.refusal("POST", "/api/v2/deployments", body)
    assert refused.message == f"bento '{tag}': model 'sugar:v1' does not exist here; push it first"
    await rough.register("model", "sugar", "v1", MODEL_MANIFEST)
    refused = await rough.refusal("POST", "/api/v2/deployments", body)
    assert "model 'sugar:v1' is not uploaded" in refused.message

    await rough.push_model(write_model(tmp_path / "sugar", "sugar", "v1"))
    assert (await rough.deploy("hungry", tag))["status"] == "deploying"
    await platform.delete("hungry")


async def test_uploads_of_one_version_at_once_leave_one_that_works(
    rough: RoughClient, bento: Bento
) -> None:
    same = bento.changed("at-once")
    one = await rough.register("bento", same.name, same.version, same.manifest)
    puts = [rough.call("PUT", f"{one}/upload", data=same.tar()) for _ in range(4)]
    said = await asyncio.gather(*puts, return_exceptions=True)
    assert any(isinstance(answer, dict) for answer in said), said
    assert (await rough.call("GET", one))["upload_status"] == "success"


def members(count: int) -> Iterator[bytes]:
    """A tar of empty files, a thousand at a time."""
    for first in range(0, count, 1000):
        names = (f"{number:07}" for number in range(first, first + 1000))
        yield b"".join(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT) for name in names)
    yield bytes(1024)


@pytest.mark.one_machine("it looks at the platform's processes")
async def test_a_tar_of_a_million_entries_is_refused_before_it_is_read(
    platform: Platform, rough: RoughClient, bento: Bento
) -> None:
    one = await rough.register("bento", "million", "v1", {**bento.manifest, "name": "million"})
    before = memory_bytes(platform.pid("control-plane"))
    caller = await Caller.to(platform.port)
    caller.send_raw(put_head(platform, one, 512 * 1_000_000 + 1024))
    answered, sent_bytes = asyncio.create_task(caller.answer()), 0
    for piece in members(1_000_000):
        caller.send_raw(piece)
        sent_bytes += len(piece)
        await caller.writer.drain()
        await asyncio.sleep(0)  # drain does not let others run unless it has to wait
        if answered.done():
            break
    answer = await answered
    grown = memory_bytes(platform.pid("control-plane")) - before
    assert answer.status == 400
    assert answer.error["message"] == "the archive has more than 20000 members (limit)"
    assert (await rough.call("GET", one))["upload_finished_reason"] == answer.error["message"]
    assert 20_000 * 512 < sent_bytes < 60_000 * 512
    assert grown < 24 << 20
    caller.leave()


def put_head(platform: AnyPlatform, one: str, length: int) -> bytes:
    return (
        f"PUT {one}/upload HTTP/1.1\r\nHost: localhost\r\nX-YATAI-API-TOKEN: {platform.token}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.client
async def test_the_client_shows_why_its_archive_is_refused(
    laptop: Laptop, rough: RoughClient, bento: Bento
) -> None:
    many = bento.changed("many-files", {f"src/{number}": "" for number in range(20_001)})
    many.write(laptop.home / "bentos" / many.name / many.version)
    said = await laptop.bentoml("push", many.tag, fails=True)
    assert "the archive has more than 20000 members (limit)" in said
    assert "Traceback" not in said


def unended(bento: Bento) -> bytes:
    """Its tar without the zeros that are its end."""
    tar = bento.tar().rstrip(b"\0")
    return tar + bytes(-len(tar) % 512)


def lying(bento: Bento) -> bytes:
    """The last file's header says a terabyte more than follows."""
    info = tarfile.TarInfo("./liar")
    info.size = 1 << 40
    return unended(bento) + info.tobuf(tarfile.GNU_FORMAT) + b"x" * 512


def bomb(bento: Bento) -> bytes:
    """A thousand times as much as it is sent."""
    info = tarfile.TarInfo("./zeros")
    info.size = 64 << 20
    zip_ = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    head = unended(bento) + info.tobuf(tarfile.GNU_FORMAT)
    zeros = bytes(1 << 20)
    pieces = [zip_.compress(head), *(zip_.compress(zeros) for _ in range(64)), zip_.flush()]
    return b"".join(pieces)


BROKEN = {
    "a lying length": (lying, "the archive ends in the middle of member 'liar'; send it again"),
    "a bomb": (bomb, "the archive's gzip data unpack to more than 200 times their size"),
}


@pytest.mark.parametrize(("make", "sentence"), BROKEN.values(), ids=BROKEN)
async def test_a_tar_that_is_not_what_it_says_is_refused(
    rough: RoughClient, bento: Bento, make: Callable[[Bento], bytes], sentence: str
) -> None:
    broken = bento.changed(make.__name__)
    one = await rough.register("bento", broken.name, broken.version, broken.manifest)
    refused = await rough.refusal("PUT", f"{one}/upload", data=make(broken))
    assert sentence in refused.message
    assert (await rough.call("GET", one))["upload_finished_reason"] == refused.message


async def test_a_body_ends_where_it_was_declared_to_end(
    platform: AnyPlatform, rough: RoughClient, bento: Bento
) -> None:
    """What follows is no part of it, and no request."""
    declared = bento.changed("declared")
    one = await rough.register("bento", declared.name, declared.version, declared.manifest)
    tar = declared.tar()
    for missing, said, status in (
        (len(tar) // 2, "the archive ends in the middle of ", 400),
        (0, "", 200),
    ):
        caller = await Caller.to(platform.port, platform.host)
        length = len(tar) - missing
        caller.send_raw(put_head(platform, one, length) + tar[:length])
        answer = await caller.answer()
        assert answer.status == status
        assert said == "" or answer.error["message"].startswith(said)
        caller.send_raw(tar[length:] + bytes(5000))
        assert (await caller.answer()).status == 400
        assert await caller.ended()
        caller.leave()
    assert (await rough.call("GET", one))["upload_status"] == "success"
