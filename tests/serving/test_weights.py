from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors import SafetensorError

from hotplate.cache import reader
from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.serving import weights
from hotplate.serving.replica.inside.worker import wait_for_absent
from hotplate.serving.streaming.library import stock_safe_open
from hotplate.serving.streaming.reader import StreamedFile
from hotplate.serving.streaming.source import is_placeholder
from tests.support.cache.fakes import OriginServer, PacedOrigin, blob_of, publish
from tests.support.imported_later import imported_later
from tests.support.streaming.arriving import CHUNK_BYTES as PAGE_BYTES
from tests.support.streaming.arriving import ArrivingTree

if TYPE_CHECKING:
    import torch
else:
    torch = imported_later("torch")
library = imported_later("safetensors.torch")


def two_tensors() -> dict[str, torch.Tensor]:
    """The library puts the wider dtype first."""
    return {"late": torch.arange(4.0), "early": torch.arange(6.0, dtype=torch.float64)}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrivingTree:
    tree = ArrivingTree(tmp_path / "trees" / "digest")
    monkeypatch.setattr(reader, "open_file", tree.open_file)
    monkeypatch.setenv("HOTPLATE_TREES", str(tmp_path / "trees"))
    monkeypatch.setenv("HOTPLATE_AGENT_SOCKET", "in this process")
    return tree


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A file that is not the agent's."""
    path = tmp_path / "plain.safetensors"
    library.save_file(two_tensors(), path)
    return path


def arrived(tree: ArrivingTree) -> Path:
    blob = tree.add("model.safetensors", library.save(two_tensors()))
    blob.release()
    return blob.path


@pytest.mark.parametrize("origin", ["agent", "stock"])
def test_stream_and_load_file_give_what_the_library_gives(
    tree: ArrivingTree, plain: Path, origin: str
) -> None:
    path = arrived(tree) if origin == "agent" else plain
    streamed = list(weights.stream(path))
    assert [name for name, _ in streamed] == ["early", "late"]
    expected = library.load_file(plain)
    for tensors in (dict(streamed), weights.load_file(path), weights.load_file(str(path), "cpu")):
        assert tensors.keys() == expected.keys()
        for name in expected:
            assert tensors[name].dtype == expected[name].dtype
            assert torch.equal(tensors[name], expected[name])
    assert len(tree.opened) == (3 if origin == "agent" else 0)


def test_any_other_path_is_opened_by_the_library_itself(tree: ArrivingTree, plain: Path) -> None:
    file = weights.safe_open(plain, "pt")
    assert type(file) is stock_safe_open
    assert isinstance(file, weights.safe_open)
    assert isinstance(weights.safe_open(arrived(tree), "pt"), weights.safe_open)
    assert not isinstance(plain, weights.safe_open)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        pytest.param(lambda: ("xx",), {}, id="framework"),
        pytest.param(lambda: ("pt", "bogus"), {}, id="device"),
        pytest.param(lambda: ("pt", torch.device("cpu")), {}, id="device of a wrong type"),
        pytest.param(lambda: ("pt",), {"backend": "zz"}, id="backend"),
        pytest.param(lambda: ("pt",), {"nope": 1}, id="unknown option"),
        pytest.param(lambda: (), {}, id="none"),
    ],
)
def test_wrong_arguments_raise_what_the_library_raises(
    tree: ArrivingTree,
    plain: Path,
    arguments: Callable[[], tuple[Any, ...]],
    options: dict[str, Any],
) -> None:
    with pytest.raises((TypeError, SafetensorError)) as expected:
        stock_safe_open(plain, *arguments(), **options)
    path = arrived(tree)
    with pytest.raises(type(expected.value.__cause__ or expected.value)):
        weights.safe_open(path, *arguments(), **options)


def test_a_missing_file_raises_what_the_library_raises(tree: ArrivingTree) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        weights.safe_open(tree.folder / "no.safetensors", "pt")


@pytest.mark.parametrize("data", [b"\x05\0\0\0\0\0\0\0[1,2]", b"123"], ids=["header", "too long"])
def test_the_library_has_the_last_word_on_a_bad_header(
    tree: ArrivingTree, in_background: Callable[..., Future[Any]], data: bytes
) -> None:
    blob = tree.add("bad.safetensors", data + bytes(PAGE_BYTES))
    blob.release(0)
    opening = in_background(weights.safe_open, blob.path, "pt")
    assert blob.wait_until_blocked() == (0, len(blob.data))
    blob.release()
    with pytest.raises(SafetensorError, match="Error while deserializing header"):
        opening.result(5)


def test_without_an_agent_a_complete_file_is_read_and_an_arriving_one_fails(
    tree: ArrivingTree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blob = tree.add("model.safetensors", library.save(two_tensors()))
    monkeypatch.undo()
    monkeypatch.setenv("HOTPLATE_TREES", str(tmp_path / "trees"))
    monkeypatch.setenv("HOTPLATE_AGENT_SOCKET", str(tmp_path / "nobody.sock"))
    with pytest.raises(OSError):
        weights.safe_open(blob.path, "pt")
    blob.path.unlink()
    blob.path.symlink_to(tmp_path / "a view that has ended with its agent")
    assert is_placeholder(str(blob.path))
    with pytest.raises(OSError):
        weights.safe_open(blob.path, "pt")
    blob.link()
    assert weights.load_file(blob.path)["late"].tolist() == [0, 1, 2, 3]


def test_a_file_that_is_a_link_out_of_the_tree_while_it_arrives_is_streamed(
    tree: ArrivingTree, tmp_path: Path
) -> None:
    blob = tree.add("model.safetensors", library.save(two_tensors()))
    shown = tmp_path / "view" / "model.safetensors"
    shown.parent.mkdir()
    shown.write_bytes(b"not what is streamed")
    blob.path.unlink()
    blob.path.symlink_to(shown)
    blob.release()
    (tmp_path / "elsewhere").symlink_to(blob.path)
    for path in (blob.path, tmp_path / "elsewhere"):
        assert weights.load_file(path)["late"].tolist() == [0, 1, 2, 3]
    assert len(tree.opened) == 2


@pytest.fixture
async def agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PacedOrigin, Path, Any]]:
    """A real one, which brings a file of one tensor per chunk."""
    names = "abc"
    body = {name: torch.full((CHUNK_BYTES - 200,), ord(name), dtype=torch.uint8) for name in names}
    data = library.save(body)
    store = tmp_path / "store"
    manifest = publish(store, {"model.safetensors": data})
    origin = PacedOrigin(FsspecOrigin(f"file://{store}"))
    server = OriginServer(store, origin)
    folder = tmp_path / "agent"
    blob = blob_of(data)
    origin.hold(blob, 2)
    async with run(AgentSettings(folder, server.url)) as url:
        client = AgentClient(url)
        tree = await client.tree(manifest.digest)
        monkeypatch.setenv("HOTPLATE_TREES", str(folder / "trees"))
        monkeypatch.setenv("HOTPLATE_AGENT_SOCKET", str(folder / "agent.sock"))
        yield origin, Path(tree.root) / "model.safetensors", client
        origin.release()
        await client.close()
    server.close()


async def test_tensors_of_a_real_agent_are_used_while_the_rest_is_held_back(
    agent: tuple[PacedOrigin, Path, Any],
) -> None:
    origin, path, _ = agent
    assert path.is_file() and not os.access(path, os.R_OK)

    stream = await asyncio.to_thread(weights.stream, path)
    for name in "ab":
        got, tensor = await asyncio.to_thread(next, stream)
        assert got == name
        assert int(tensor.min()) == int(tensor.max()) == ord(name)
    assert not os.access(path, os.R_OK)
    last = asyncio.ensure_future(asyncio.to_thread(next, stream))
    await asyncio.sleep(0.05)
    assert not last.done()
    origin.release()
    name, tensor = await last
    assert (name, int(tensor.min()), int(tensor.max())) == ("c", ord("c"), ord("c"))
    tensor.fill_(0)
    again = await asyncio.to_thread(weights.load_file, path)
    assert int(again["c"].min()) == ord("c"), "a write stays with the one who wrote"


async def test_a_worker_waits_for_a_file_that_is_not_seen_before_it_is_whole(
    agent: tuple[PacedOrigin, Path, Any],
) -> None:
    origin, path, _ = agent
    waiting = asyncio.ensure_future(asyncio.to_thread(wait_for_absent, [str(path)]))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    origin.release()
    await waiting
    assert path.stat().st_size > 2 * CHUNK_BYTES


async def test_a_start_that_fails_ends_when_the_next_one_finds_all_files_whole(
    agent: tuple[PacedOrigin, Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, path, _ = agent
    monkeypatch.setenv("HOTPLATE_MODELS", str(path.parent))
    program = """
        import os
        from hotplate.serving.replica.inside import worker
        path = os.path.join(os.environ["HOTPLATE_MODELS"], "model.safetensors")
        worker._leave = lambda status: print(status, os.path.getsize(path))
        worker.run(lambda: open("/nowhere").close())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", textwrap.dedent(program)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    async for line in process.stderr:
        if line.startswith(b"The service did not start: FileNotFoundError"):
            break
    origin.release()
    status, size_bytes = (await process.stdout.read()).split()
    assert int(status) == 1 and int(size_bytes) > 2 * CHUNK_BYTES
    await process.wait()


def test_a_streamed_file_has_what_the_library_has() -> None:
    public = {name for name in dir(stock_safe_open) if not name.startswith("_")}
    assert public <= set(dir(StreamedFile))


def run_python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_install_replaces_what_is_imported_later_and_imports_no_framework() -> None:
    run_python(
        """
        import sys
        from hotplate.serving.replica.inside.patches.streamed_safetensors import install
        install()
        install()
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        from hotplate.serving.weights import safe_open as ours
        from safetensors import safe_open
        import safetensors.numpy
        assert safe_open is safetensors.numpy.safe_open is ours
        """
    )


def test_install_reaches_modules_that_were_imported_before() -> None:
    run_python(
        """
        import safetensors.numpy, types, sys
        mine = types.ModuleType("mine")
        mine.safe_open = safetensors.safe_open
        sys.modules["mine"] = mine
        from hotplate.serving.replica.inside.patches.streamed_safetensors import install
        install()
        from hotplate.serving.weights import safe_open as ours
        assert mine.safe_open is safetensors.numpy.safe_open is safetensors.safe_open is ours
        """
    )


def test_a_forked_worker_waits_on_its_own_and_leaves_its_parents_lease(tmp_path: Path) -> None:
    run_python(
        """
        import os, sys, threading
        from pathlib import Path
        import numpy as np
        from safetensors.numpy import save
        from hotplate.cache import reader
        from hotplate.serving.weights import safe_open
        from tests.support.streaming.arriving import ArrivingTree
        folder = Path(os.environ["HOTPLATE_TREES"])
        tree = ArrivingTree(folder)
        reader.open_file = tree.open_file
        blob = tree.add("x.safetensors", save({"x": np.arange(9)}))
        blob.release()
        file = safe_open(blob.path, "np")
        child = os.fork()
        if not child:
            same = (file.get_tensor("x") == np.arange(9)).all()
            own = len(tree.opened)
            del file
            parents, mine = (one.closed for one in tree.opened)
            os._exit(0 if same and own == 2 and mine and not parents else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        HOTPLATE_TREES=str(tmp_path),
        HOTPLATE_AGENT_SOCKET="in this process",
    )


def test_an_unmodified_transformers_model_streams(tmp_path: Path) -> None:
    shown = run_python(
        """
        from hotplate.serving.replica.inside.patches import streamed_safetensors
        install, weights_span = streamed_safetensors.install, streamed_safetensors.weights_span
        install()
        import os, sys, threading
        from pathlib import Path
        import torch
        from transformers import BertConfig, BertModel, AutoModel
        from hotplate.cache import reader
        from tests.support.streaming.arriving import ArrivingTree

        torch.manual_seed(0)
        config = BertConfig(vocab_size=500, hidden_size=32, num_hidden_layers=2,
                            num_attention_heads=2, intermediate_size=64)
        model = BertModel(config).eval()
        saved = Path(os.environ["SAVED"])
        model.save_pretrained(saved, max_shard_size="80KB")

        tree = ArrivingTree(Path(os.environ["HOTPLATE_TREES"]) / "digest")
        reader.open_file = tree.open_file
        for path in sorted(saved.iterdir()):
            if path.suffix == ".safetensors":
                tree.add(path.name, path.read_bytes())
            else:
                (tree.folder / path.name).write_bytes(path.read_bytes())
        blobs = list(tree.blobs.values())
        assert len(blobs) >= 2

        def arrive():
            for blob in blobs:
                for chunk in blob.chunks:
                    blob.release(chunk)
        threading.Timer(0.2, arrive).start()
        loaded = AutoModel.from_pretrained(tree.folder).eval()
        assert all(blob.path.stat().st_size == 0 for blob in blobs), "only streamed"
        ids = torch.arange(20).reshape(2, 10)
        with torch.inference_mode():
            assert torch.equal(loaded(ids).last_hidden_state, model(ids).last_hidden_state)
        span = weights_span()
        assert span.size_bytes == sum(len(blob.data) for blob in blobs)
        assert span.end - span.start >= 0.1
        print(len(tree.opened))
        """,
        HOTPLATE_TREES=str(tmp_path / "trees"),
        HOTPLATE_AGENT_SOCKET="in this process",
        SAVED=str(tmp_path / "saved"),
    )
    assert int(shown.split()[-1]) >= 2
