"""Compiles the Python files of a new environment, each of them once per organization.

    python -I -S -c SOURCE ENVIRONMENT KEPT

Most packages of a new environment are in an earlier one too, and to compile them again takes most
of the time of a build. The bytecode of a file depends only on its source and on the Python, so it
is kept in the folder KEPT by the digest of the source. Only builds of the same organization write
there, and the packages that they install come from a folder of theirs too.

This program runs in the isolation of the build and imports nothing of ours. It leaves out what it
cannot compile, as `uv` does.
"""

from __future__ import annotations

import _imp
import hashlib
import marshal
import os
import py_compile
import stat
import sys
from collections.abc import Iterator, Sequence
from importlib.util import MAGIC_NUMBER, cache_from_source

HEADER_BYTES = 16
"""What a compiled file begins with (PEP 552): a number of the Python, flags, and the time and the
size of the source, in four bytes each."""
DIGEST_BYTES = 20
MOST_SOURCE_BYTES = 32 << 20
"""Longer sources are left out."""


def main(environment: str, kept: str) -> int:
    """Works on all processors. Returns the exit status: 1 if one of its processes was killed."""
    files = sorted(_sources(os.path.join(environment, "lib")))
    count = len(os.sched_getaffinity(0))
    mine, *others = (files[first::count] for first in range(count))
    pids = []
    for share in others:
        try:
            pid = os.fork()
        except OSError:  # the build may have no more processes
            mine += share
            continue
        if pid == 0:
            compile_all(share, kept)
            os._exit(0)
        pids.append(pid)
    compile_all(mine, kept)
    return int(any([os.waitpid(pid, 0)[1] for pid in pids]))


def compile_all(files: Sequence[str], kept: str) -> None:
    for file in files:
        try:
            _compile(file, os.path.join(kept, MAGIC_NUMBER.hex()))
        except Exception:
            continue  # it is no Python, or that of another version


def _compile(file: str, kept: str) -> None:
    about = os.lstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_SOURCE_BYTES:
        return
    with open(file, "rb") as opened:
        digest = _digest(opened.read()).hex()
    place = os.path.join(kept, digest[:2], digest[2:])
    target = cache_from_source(file)
    code = read(place)
    if code is None:
        py_compile.compile(file, target, doraise=True)
        with open(target, "rb") as opened:
            keep(place, opened.read()[HEADER_BYTES:])
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    numbers = (0, int(about.st_mtime), about.st_size)
    header = b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)
    with open(target, "wb") as opened:
        opened.write(MAGIC_NUMBER + header + _of_file(code, file))


def _of_file(code: bytes, file: str) -> bytes:
    """The same bytecode with this file in its tracebacks. The import does so too where it has to,
    in each start of a replica."""
    loaded = marshal.loads(code)
    _imp._fix_co_filename(loaded, file)  # type: ignore[attr-defined]
    return marshal.dumps(loaded)


def read(place: str) -> bytes | None:
    """The bytecode that is kept there; None if there is none, or not as it was written."""
    try:
        with open(place, "rb") as opened:
            digest, code = opened.read(DIGEST_BYTES), opened.read()
    except OSError:
        return None
    return code if digest == _digest(code) else None


def keep(place: str, code: bytes) -> None:
    """Keeps bytecode for later builds; other processes may do the same at the same moment."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    unfinished = f"{place}.{os.urandom(8).hex()}"
    with open(unfinished, "wb") as opened:
        opened.write(_digest(code) + code)
    os.replace(unfinished, place)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def _sources(top: str) -> Iterator[str]:
    """All Python files below a folder, however deep it is; links are not followed."""
    folders = [top]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.name.endswith(".py"):
                        yield entry.path
        except OSError:
            continue  # a path that is too long


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
