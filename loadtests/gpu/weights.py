"""Weights on a GPU, bit for bit, by every way in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from hotplate.serving.streaming.source import AGENT_SOCKET, TREES
from hotplate.serving.weights import load_file, safe_open, stream
from loadtests.gpu.finding import Finding, ensure
from loadtests.systems.stand_in_agent import StandInAgent

DTYPES = (
    *("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float16", "bfloat16", "float32", "float64", "complex64"),
)
"""As far as this PyTorch has them."""
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (3, 0, 2), (1,), (7,), (5, 9), (2, 3, 4))
LARGE_BYTES = (40 << 20) + 3
"""Fills several slots of the ring and part of another."""
PAUSE_S = 0.05

Tensors = dict[str, torch.Tensor]


def every_dtype(folder: Path) -> Iterator[Finding]:
    """`stream`, `load_file` and `safe_open` to the GPU, also in inference mode."""
    tensors = _random_tensors()
    path = folder / "all.safetensors"
    save_file(tensors, path)
    with _streamed(folder) as agent:
        for device in ("cuda", "cuda:0", 0):
            _compare(dict(stream(str(path), device)), tensors, f"stream(device={device!r})")
        yield Finding('stream(device="cuda")', f"{len(tensors)} tensors bit-equal", True)
        _compare(load_file(path, device="cuda"), tensors, "load_file")
        with torch.inference_mode():
            _compare(load_file(path, device="cuda"), tensors, "load_file in inference mode")
        yield Finding('load_file(device="cuda")', f"{len(tensors)} tensors bit-equal", True)
        with safe_open(str(path), "pt", device="cuda") as file:
            _compare({name: file.get_tensor(name) for name in file.keys()}, tensors, "get_tensor")  # noqa: SIM118
            rows = {name: tensor for name, tensor in tensors.items() if len(tensor.shape) > 1}
            parts = {name: file.get_slice(name)[:, 1:] for name in rows}
        _compare(parts, {name: tensor[:, 1:] for name, tensor in rows.items()}, "get_slice")
        yield Finding('safe_open(device="cuda")', f"{len(tensors)} tensors bit-equal", True)
        ensure(len(agent.opened) > 3, "the files were not streamed")


def arriving(folder: Path) -> Iterator[Finding]:
    """Tensors are on the GPU while later bytes of their file are not there yet."""
    rows = {f"{n:02}": _random(torch.uint8, (16 << 20,), n) for n in range(12)}
    path = folder / "rows.safetensors"
    save_file(rows, path)
    with _streamed(folder, PAUSE_S) as agent:
        early, arrived = 0, dict[str, Any]()
        for name, tensor in stream(str(path), "cuda"):
            torch.cuda.synchronize()
            early += not agent.whole(path)
            arrived[name] = tensor
    _compare(arrived, rows, "stream of a file that arrives")
    figure = f"{early} of {len(rows)} tensors there before the file was"
    yield Finding("weights that still arrive", figure, early >= len(rows) // 2)


def pretrained(folder: Path) -> Iterator[Finding]:
    """An unmodified `from_pretrained(…).to("cuda")` with our reader in safetensors' place."""
    from transformers import BertConfig, BertModel

    from hotplate.serving.replica.inside.patches.streamed_safetensors import install

    config = BertConfig(
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
    )
    made = BertModel(config).eval()
    made.save_pretrained(folder / "bert")
    install()
    with _streamed(folder) as agent:
        loaded = BertModel.from_pretrained(folder / "bert").eval().to("cuda")
        ensure(bool(agent.opened), "the file was not streamed")
        _compare(loaded.state_dict(), made.state_dict(), "from_pretrained")
        words = torch.arange(64).reshape(1, 64)
        with torch.inference_mode():
            there = loaded(words.to("cuda")).last_hidden_state.cpu()
            here = made(words).last_hidden_state
    apart = float((there - here).abs().max())
    ensure(apart < 0.05, f"the model's answer on the GPU is {apart:g} from the CPU's")
    figure = f"{len(made.state_dict())} tensors bit-equal"
    yield Finding('from_pretrained(…).to("cuda")', figure, True)


@contextmanager
def _streamed(folder: Path, pause_s: float = 0.0) -> Iterator[StandInAgent]:
    """This process streams files below the folder from a stand-in for the agent."""
    with StandInAgent(folder / "socket", pause_s) as agent:
        os.environ[TREES], os.environ[AGENT_SOCKET] = str(folder), str(folder / "socket")
        try:
            yield agent
        finally:
            del os.environ[TREES], os.environ[AGENT_SOCKET]


def _random_tensors() -> Tensors:
    known = [getattr(torch, name) for name in DTYPES if hasattr(torch, name)]
    tensors = {f"{dtype}{shape}": _random(dtype, shape, 1) for dtype in known for shape in SHAPES}
    return tensors | {"large": _random(torch.uint8, (LARGE_BYTES,), 2)}


def _random(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty(shape, dtype=dtype).nbytes
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    if dtype is torch.bool:
        data &= 1
    return data.view(dtype).reshape(shape)


def _compare(got: Mapping[str, Any], right: Mapping[str, Any], way: str) -> None:
    ensure(got.keys() == right.keys(), f"{way}: {sorted(got.keys() ^ right.keys())[:3]} are off")
    for name, tensor in right.items():
        here = got[name]
        ensure(here.device.type == "cuda", f"{way}: {name} is on {here.device}")
        same = (here.dtype, here.shape) == (tensor.dtype, tensor.shape)
        ensure(same and torch.equal(_bits(here.cpu()), _bits(tensor)), f"{way}: {name} is wrong")


def _bits(tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
