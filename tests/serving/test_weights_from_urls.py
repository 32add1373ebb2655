"""Weights from a URL in a plain process, through a real agent."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors import SafetensorError

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.serving import weights
from tests.serving.streaming.test_reader import bits, random_tensors
from tests.support.cache.web import WebServer
from tests.support.imported_later import imported_later
from tests.support.streaming.slow_device import SlowDevice

if TYPE_CHECKING:
    import torch
else:
    torch = imported_later("torch")
library = imported_later("safetensors.torch")

ROWS, COLUMNS = 4, CHUNK_BYTES // 2
EIGHTH = COLUMNS // 8
"""A row of "wide" is two chunks of float32; the second eighth of it lies within one."""


@pytest.fixture
async def agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[AgentClient, str]]:
    """One without a token, and the URL of the folder that it may read."""
    settings = AgentSettings(tmp_path / "agent", arena_limit_bytes=1 << 30)
    async with run(settings) as url:
        client = AgentClient(url)
        monkeypatch.setenv("HOTPLATE_AGENT", url.removeprefix("http://"))
        yield client, f"file://{tmp_path}"
        await client.close()


async def fetched_bytes(client: AgentClient) -> int:
    return int((await client.status())["origin_bytes"])


@pytest.fixture(params=["file", "http"])
def put(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[Path], str]]:
    """Puts a file where the agent reads it by the URL that this gives."""
    if request.param == "file":
        yield lambda path: f"file://{path}"
    else:
        with WebServer({}) as server:

            def show(path: Path) -> str:
                server.change(f"/{path.name}", path.read_bytes())
                return f"{server.url}/{path.name}"

            yield show


async def test_a_url_gives_what_the_library_gives_for_the_file(
    put: Callable[[Path], str], agent: tuple[AgentClient, str], tmp_path: Path
) -> None:
    client, _ = agent
    path = tmp_path / "all.safetensors"
    tensors = random_tensors() | {"large": torch.randn(CHUNK_BYTES // 2 + 1)}
    library.save_file(tensors, path, metadata={"format": "pt"})
    url = put(path)

    def load() -> None:
        expected = library.load_file(path)
        for got in (weights.load_file(url), dict(weights.stream(url))):
            assert got.keys() == expected.keys()
            assert all(bits(got[name]) == bits(expected[name]) for name in expected)
        with weights.safe_open(url, "pt") as file:
            assert file.metadata() == {"format": "pt"}
            assert file.keys() == sorted(tensors)
            part = file.get_slice("large")[5:7]
        part.fill_(1)
        del file
        gc.collect()
        assert part.tolist() == [1, 1]
        assert bits(weights.load_file(url)["large"]) == bits(tensors["large"])

    await asyncio.to_thread(load)
    assert await fetched_bytes(client) == path.stat().st_size


async def test_a_tensor_outlives_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library.save_file({"x": torch.arange(9)}, tmp_path / "x.safetensors")
    async with run(AgentSettings(tmp_path / "agent")) as url:
        monkeypatch.setenv("HOTPLATE_AGENT", url.removeprefix("http://"))
        loaded = await asyncio.to_thread(weights.load_file, f"file://{tmp_path}/x.safetensors")
    assert loaded["x"].add_(1).tolist() == list(range(1, 10))


@pytest.mark.parametrize(
    ("rule", "index"),
    [
        pytest.param((0, 2, 3), (slice(2, 3),), id="rows"),
        pytest.param(
            weights.shard(1, 1, 8), (slice(None), slice(EIGHTH, 2 * EIGHTH)), id="columns"
        ),
    ],
)
@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "device"])
async def test_a_plan_fetches_the_chunks_of_its_parts_and_no_others(
    agent: tuple[AgentClient, str], tmp_path: Path, rule: Any, index: Any, on_device: bool
) -> None:
    client, folder = agent
    path = tmp_path / "wide.safetensors"
    wide = torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS)
    library.save_file({"wide": wide, "small": torch.zeros(8)}, path)
    header = path.stat().st_size - wide.nbytes - 32
    needed = {0}  # the header's
    for row in range(ROWS)[index[0]]:
        first = header + 32 + 4 * (row * COLUMNS + (index[1].start if len(index) > 1 else 0))
        last = first + 4 * (EIGHTH if len(index) > 1 else COLUMNS) - 1
        needed.update(range(first // CHUNK_BYTES, last // CHUNK_BYTES + 1))
    device = SlowDevice()
    plan = {"wide": rule, "small": None}

    def take() -> dict[str, torch.Tensor]:
        url = f"{folder}/wide.safetensors"
        return dict(weights.stream(url, device if on_device else "cpu", plan))

    got = await asyncio.to_thread(take)
    device.close()
    assert list(got) == ["wide"]
    assert bits(got["wide"]) == bits(wide[index])
    assert len(needed) <= ROWS
    assert 0 < await fetched_bytes(client) <= len(needed) * CHUNK_BYTES


async def test_a_part_comes_whole_when_another_reader_wants_all(
    agent: tuple[AgentClient, str], tmp_path: Path
) -> None:
    client, folder = agent
    path = tmp_path / "wide.safetensors"
    wide = torch.zeros(4, CHUNK_BYTES, dtype=torch.uint8)
    library.save_file({"wide": wide}, path)
    url = f"{folder}/wide.safetensors"
    part = weights.stream(url, plan={"wide": (0, 0, 1)})
    held = await asyncio.to_thread(next, part)
    assert await fetched_bytes(client) <= 2 * CHUNK_BYTES
    whole = await asyncio.to_thread(weights.load_file, url)
    assert bits(whole["wide"]) == bits(wide)
    assert await fetched_bytes(client) == path.stat().st_size, "no chunk twice"
    assert held[1].shape == (1, CHUNK_BYTES)


async def test_a_bad_header_is_refused_as_by_the_library_and_a_bad_plan_before_any_tensor(
    agent: tuple[AgentClient, str], tmp_path: Path
) -> None:
    _, folder = agent
    (tmp_path / "bad.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0[1,2]")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    library.save_file({"x": torch.zeros(4)}, tmp_path / "x.safetensors")

    def fail() -> None:
        for name in ("bad", "empty"):
            with pytest.raises(SafetensorError, match="deserializing header"):
                weights.load_file(f"{folder}/{name}.safetensors")
            with pytest.raises(SafetensorError, match="deserializing header"):
                next(weights.stream(f"{folder}/{name}.safetensors", plan={"x": None}))
        with pytest.raises(ValueError, match="plan for x: 0 to 5 is not within the 4"):
            next(weights.stream(f"{folder}/x.safetensors", plan={"*": (0, 0, 5)}))
        with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
            weights.load_file(f"{folder}/nothing.safetensors")

    await asyncio.to_thread(fail)


async def test_a_model_larger_than_the_arena_goes_to_a_device_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {name: torch.randn(CHUNK_BYTES // 4) for name in "abc"}
    library.save_file(tensors, tmp_path / "x.safetensors")
    device = SlowDevice(bytes_per_s=1e9)

    def load() -> None:
        for name, tensor in weights.stream(f"file://{tmp_path}/x.safetensors", device):
            assert bits(tensor) == bits(tensors[name])

    async with run(AgentSettings(tmp_path / "agent", arena_limit_bytes=CHUNK_BYTES)) as url:
        monkeypatch.setenv("HOTPLATE_AGENT", url.removeprefix("http://"))
        await asyncio.to_thread(load)
    device.close()


async def test_the_agents_token_is_read_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.save_file({"x": torch.arange(3)}, tmp_path / "x.safetensors")
    url = f"file://{tmp_path}/x.safetensors"
    async with run(AgentSettings(tmp_path / "agent", token="secret")) as address:
        monkeypatch.setenv("HOTPLATE_AGENT", address.removeprefix("http://"))
        with pytest.raises(OSError, match="wants its token; set HOTPLATE_AGENT_TOKEN_FILE=FILE"):
            await asyncio.to_thread(weights.load_file, url)
        (tmp_path / "token").write_text("secret\n")
        monkeypatch.setenv("HOTPLATE_AGENT_TOKEN_FILE", str(tmp_path / "token"))
        assert (await asyncio.to_thread(weights.load_file, url))["x"].tolist() == [0, 1, 2]
        monkeypatch.setenv("HOTPLATE_AGENT_TOKEN_FILE", str(tmp_path / "none"))
        with pytest.raises(OSError, match="cannot be read"):
            await asyncio.to_thread(weights.load_file, url)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("", "a URL needs a node agent; set HOTPLATE_AGENT=HOST:PORT"),
        ("nowhere", "HOTPLATE_AGENT=nowhere is not HOST:PORT"),
        ("127.0.0.1:1", "no agent answers at 127.0.0.1:1"),
    ],
)
def test_a_url_without_an_agent_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, address: str, sentence: str
) -> None:
    monkeypatch.setenv("HOTPLATE_AGENT", address)
    for use in (weights.load_file, lambda url: weights.safe_open(url, "pt")):
        with pytest.raises(OSError, match=f"^s3://bucket/model.safetensors: {sentence}"):
            use("s3://bucket/model.safetensors")


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (200, b"<html>", r"no agent answers at 127\.0\.0\.1:\d+ \(Expecting value"),
        (200, b"[]", r"\(status 200\) is no agent"),
        (404, b"{}", r"\(status 404\) is no agent"),
        (200, b'{"socket": "/nowhere/agent.sock"}', "on its own machine only"),
    ],
)
def test_what_is_no_agent_of_this_machine_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, sentence: str
) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        monkeypatch.setenv("HOTPLATE_AGENT", f"127.0.0.1:{server.server_port}")
        with pytest.raises(OSError, match=f"^s3://bucket/x: .*{sentence}"):
            weights.load_file("s3://bucket/x")
        serving.join()
