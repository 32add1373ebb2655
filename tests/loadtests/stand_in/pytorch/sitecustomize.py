"""A GPU that is none, for the processes that have this folder and the one above on `PYTHONPATH`.

Has PyTorch say that there is a GPU for each entry of `CUDA_VISIBLE_DEVICES` (one without it). Its
memory is the host's; tensors made for it or brought to it say that they are on it. A copy stream
copies at once. Nothing here shows that CUDA would do the same.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pynvml import MEMORY_BYTES, NAME, uuid


class OnImport(importlib.abc.MetaPathFinder):
    """Changes PyTorch when it has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Event:
    def __init__(self, *arguments: Any, **options: Any) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...


class Stream(Event):
    def record_event(self) -> Event:
        return Event()

    def wait_event(self, event: Event) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def change(torch: Any) -> None:
    """Everything that we and our checks ask of CUDA."""
    there = Memory(torch)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    count = len(list(filter(None, visible.split(","))))
    cuda = torch.cuda
    began: list[bool] = []
    cuda.is_available = lambda: count > 0
    cuda.device_count = lambda: count
    cuda.current_device = lambda: 0
    cuda.is_initialized = lambda: bool(began)
    cuda.get_device_name = lambda device=0: NAME
    cuda.mem_get_info = lambda device=0: (MEMORY_BYTES // 4, MEMORY_BYTES)
    cuda.synchronize = lambda device=None: None
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = lambda device=None: Stream()
    cuda.stream = lambda stream: stream
    cuda.set_stream = lambda stream: None
    cuda.get_device_properties = lambda device: SimpleNamespace(
        name=NAME, total_memory=MEMORY_BYTES, uuid=uuid(0)
    )
    for name in ("empty", "full", "zeros", "ones", "arange", "randint"):
        setattr(torch, name, there.makes(getattr(torch, name), began))
    tensor = torch.Tensor
    tensor.to = there.moves(tensor.to, began)
    tensor.cpu = lambda self: self.to("cpu")
    tensor.record_stream = lambda self, stream: None
    tensor.device = property(there.device)


class Memory:
    """Which of the host's memory is the stand-in's: by the address of its storage."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stock = torch._C.TensorBase.device
        self._byte = torch.empty(1, dtype=torch.uint8)
        self._addresses: set[int] = set()

    def device(self, tensor: Any) -> Any:
        stock = self._stock.__get__(tensor)
        if stock.type == "meta":
            return stock
        address = tensor.untyped_storage().data_ptr()
        return self._torch.device("cuda", 0) if address in self._addresses else stock

    def mark(self, tensor: Any) -> Any:
        if not tensor.numel():  # has no address
            tensor = self._byte.clone()[:0].view(tensor.dtype).reshape(tensor.shape)
        self._addresses.add(tensor.untyped_storage().data_ptr())
        return tensor

    def fresh(self, tensor: Any) -> Any:
        """On the host, whatever was at this address before."""
        self._addresses.discard(tensor.untyped_storage().data_ptr())
        return tensor

    def is_ours(self, device: Any) -> bool:
        return str(device).startswith("cuda") or (isinstance(device, int) and device is not True)

    def makes(self, stock: Callable[..., Any], began: list[bool]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def made(*arguments: Any, **options: Any) -> Any:
            options.pop("pin_memory", None)
            ours = self.is_ours(options.get("device"))
            if not ours:
                tensor = stock(*arguments, **options)
                return tensor if tensor.is_meta else self.fresh(tensor)
            began.append(True)
            return self.mark(stock(*arguments, **{**options, "device": "cpu"}))

        return made

    def moves(self, stock: Callable[..., Any], began: list[bool]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def moved(tensor: Any, *arguments: Any, **options: Any) -> Any:
            device = options.get("device", arguments[0] if arguments else None)
            if self.is_ours(device):
                began.append(True)
                return self.mark(tensor.clone())
            if str(device) == "cpu":
                return self.fresh(tensor.clone())
            return stock(tensor, *arguments, **options)

        return moved


sys.meta_path.insert(0, OnImport())
