"""The library of `programs/faulty_libc.c` and what it does to the processes that have loaded it."""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from loadtests.harness.child_process import ROOT, BenchmarkFailed

SOURCE = ROOT / "loadtests" / "programs" / "faulty_libc.c"
_LAYOUT = struct.Struct("=qqq1024s")


class FaultyLibc:
    """One set of faults, for all processes that were started with its `environ`."""

    def __init__(self, folder: Path, disk: Path) -> None:
        """Compiles the library into `folder`; `disk` is what may become read-only or slow. Raises
        BenchmarkFailed."""
        self._library, self._control = folder / "faulty_libc.so", folder / "faults"
        self._disk = str(disk).encode()
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE)]
        try:
            built = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise BenchmarkFailed("there is no C compiler (cc) on this machine") from None
        if built.returncode:
            raise BenchmarkFailed(f"{SOURCE.name} cannot be compiled: {built.stderr[-500:]}")
        self._control.write_bytes(bytes(_LAYOUT.size))
        with self._control.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._set()

    @property
    def environ(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULTY_LIBC": str(self._control)}

    @contextmanager
    def fault(
        self, *, wall_s: int = 0, read_only: bool = False, slow_s: float = 0.0
    ) -> Iterator[None]:
        """In force until the block ends: the wall clock is off by so much, the disk takes no
        writes, or each access takes so much longer."""
        self._set(wall_s, int(read_only), round(slow_s * 1e6))
        try:
            yield
        finally:
            self._set()

    def _set(self, wall_s: int = 0, read_only: int = 0, slow_us: int = 0) -> None:
        self._mapped[:] = _LAYOUT.pack(wall_s, read_only, slow_us, self._disk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._mapped.close()
