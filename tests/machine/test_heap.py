from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from hotplate.machine.heap import ARENAS

ARENAS_OF_THREADS = """
import ctypes, sys, tempfile, threading
from hotplate.machine import heap

if sys.argv[1] == "shared":
    assert heap.share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
all_there = threading.Barrier(8)

def allocate():
    libc.malloc(1000)
    all_there.wait()  # an arena whose thread has ended is the next one's

threads = [threading.Thread(target=allocate) for _ in range(all_there.parties)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as told:
    stream = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(told.read().count(b"<heap "))
"""


def arenas_of_threads(how: str) -> int:
    """Of a process in which eight threads have allocated at the same time."""
    told = subprocess.run(
        [sys.executable, "-c", ARENAS_OF_THREADS, how],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    return int(told.stdout)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="this C library is not glibc"
)
def test_threads_share_the_arenas_of_malloc() -> None:
    assert arenas_of_threads("shared") <= ARENAS
    assert arenas_of_threads("own") > ARENAS
