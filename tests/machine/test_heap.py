from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from hotplate.machine.heap import ARENAS

BLOCK_BYTES = 4 << 20
THREADS = 8
"""Each holds a small block that it has asked for after a large one, which is free again."""
PROGRAM = f"""
import ctypes, json, re, sys, tempfile, threading
from hotplate.machine import heap

if sys.argv[1] == "little":
    assert heap.keep_little()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
all_there = threading.Barrier({THREADS})

def arenas():
    with tempfile.NamedTemporaryFile() as told:
        stream = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        return re.findall(rb'system type="current" size="([0-9]+)"/>.*?</heap>', told.read(), re.S)

def allocate():
    for size in ({2 * BLOCK_BYTES}, {BLOCK_BYTES}):
        block = ctypes.c_void_p(libc.malloc(size))
        libc.malloc(1000)
        libc.free(block)
    all_there.wait()  # an arena whose thread has ended is the next one's

before = arenas()
threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([len(arenas()), sum(map(int, arenas())) - sum(map(int, before))]))
"""


class Kept(NamedTuple):
    """Of a process whose threads hold a few small blocks."""

    arenas: int
    more_bytes: int
    """In all arenas, than before the threads were started."""


def kept(how: str) -> Kept:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, check=True, timeout=60
    )
    return Kept(*json.loads(told.stdout))


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="this C library is not glibc"
)
def test_malloc_keeps_little_of_what_threads_have_freed() -> None:
    little, usual = kept("little"), kept("usual")
    assert little.arenas <= ARENAS < usual.arenas
    assert little.more_bytes < 1 << 20
    assert usual.more_bytes > BLOCK_BYTES
