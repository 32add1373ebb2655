"""Tensors on their way to a device, in the file's order, some of them ahead of their use."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hotplate.serving.streaming.header import TensorEntry
from hotplate.serving.streaming.staging import Bytes, Landing, Run, Staging, runs
from hotplate.serving.streaming.tensor import StreamedTensor, TorchTensor, typed

AHEAD_BYTES = 256 << 20
"""Device memory for tensors that are not taken yet: 5 ms of a PCIe 5 link."""

Part = tuple[str, StreamedTensor, Any]
"""A tensor's name, the tensor, and what to index it with."""


class _Transfer(NamedTuple):
    """A transfer that has begun; its iterator waits for the end and gives (name, tensor)."""

    size_bytes: int
    landing: Landing | None
    tensors: Iterator[tuple[str, Any]]


def pipelined(staging: Staging, parts: Iterable[Part]) -> Iterator[tuple[str, Any]]:
    """(name, tensor on the device) for each part. Raises OSError if bytes cannot be brought."""
    under_way: deque[_Transfer] = deque()
    ahead_bytes = 0
    try:
        for transfer in _begun(staging, parts):
            under_way.append(transfer)
            ahead_bytes += transfer.size_bytes
            while ahead_bytes > AHEAD_BYTES:
                ahead_bytes -= under_way[0].size_bytes
                yield from under_way.popleft().tensors
        while under_way:
            yield from under_way.popleft().tensors
    finally:
        for transfer in under_way:
            if transfer.landing is not None:
                transfer.landing.cancel()


def _begun(staging: Staging, parts: Iterable[Part]) -> Iterator[_Transfer]:
    """One transfer after another, each begun when the iterator gets to it."""
    for ours, group in itertools.groupby(parts, lambda part: isinstance(part[1], TorchTensor)):
        if not ours:
            for name, one, index in group:
                yield _Transfer(0, None, _read(name, one, index))
            continue
        for run in runs(_packed(group), staging.slot_bytes):
            landing = staging.land(run.data, run.start, run.stop)
            yield _Transfer(run.stop - run.start, landing, _landed(run, landing))


def _packed(parts: Iterable[Part]) -> Iterator[tuple[str, TensorEntry, Bytes]]:
    for name, one, index in parts:
        assert isinstance(one, TorchTensor)
        yield name, *one.packed(index)


def _read(name: str, one: StreamedTensor, index: Any) -> Iterator[tuple[str, Any]]:
    yield name, one[index] if index else one.whole()


def _landed(run: Run, landing: Landing) -> Iterator[tuple[str, Any]]:
    memory = landing.memory()
    for name, entry in run.entries:
        yield name, typed(memory[entry.start - run.start : entry.stop - run.start], entry)
