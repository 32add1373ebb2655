"""What imports leave in a process that its forks would share, or miss; standard library only.

Threads end with a fork, and two processes that read one socket, pipe or file take from each other.
So a process with such a thing must not be forked. Python >= 3.9.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from typing import Any

THREAD, PROCESS = "a thread", "a process"
_STANDARD = {0, 1, 2}
_HARMLESS = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
"""Files that give and take the same in every process."""
_STEPS = (
    (SourceFileLoader, "exec_module"),
    (ExtensionFileLoader, "create_module"),
    (ExtensionFileLoader, "exec_module"),
)

Leftover = tuple[str, int]
"""What it is, and its number."""


class Leftovers:
    """Within the block, records which module's import has left what."""

    def __init__(self, known: Iterable[int], folder: Path) -> None:
        """Descriptors that are `known`, and files below `folder`, are nothing that was left."""
        self.known = _STANDARD | set(known)
        self._folder = os.path.join(os.path.realpath(folder), "")
        self._authors: dict[Leftover, str] = {}

    def __enter__(self) -> Leftovers:
        self._stock = [(kind, name, getattr(kind, name)) for kind, name in _STEPS]
        for kind, name, stock in self._stock:
            self._watch(kind, name, stock)
        return self

    def __exit__(self, *_: object) -> None:
        for step in self._stock:
            setattr(*step)

    def sentence(self) -> str:
        """Why this process cannot be forked; "" if it can. It forks once, to see what is left then:
        some libraries end their threads before a fork, and start them again."""
        _reap()
        present = self._present()
        if any(what == THREAD for what, _ in present):
            try:
                _fork_once()
            except OSError as error:
                return f"it could not be forked: {error}"
            present = self._present()
        left = {f"{self._authors.get(each, 'an import')} left {each[0]}" for each in present}
        if not left and _has_made_a_context():
            left = {"an import initialized CUDA"}
        return "; ".join(sorted(left))

    def descriptors(self) -> dict[int, str]:
        """Those that were left, with what they are open for."""
        left = {}
        for number in set(map(int, os.listdir("/proc/self/fd"))) - self.known:
            with suppress(OSError):  # the list's own
                target = os.readlink(f"/proc/self/fd/{number}")
                if not (target in _HARMLESS or target.startswith(self._folder)):
                    left[number] = target
        return left

    def _watch(self, kind: type, step: str, stock: Any) -> None:
        def noted(loader: Any, module: Any) -> Any:
            try:
                return stock(loader, module)
            finally:
                for new in self._present() - self._authors.keys():
                    self._authors[new] = loader.name  # the innermost, as it ends first

        setattr(kind, step, noted)

    def _present(self) -> set[Leftover]:
        """What there is now that was not known."""
        files = self.descriptors().items()
        found = {(f"{target} open as descriptor {number}", number) for number, target in files}
        threads = set(map(int, os.listdir("/proc/self/task"))) - {os.getpid()}
        found |= {(THREAD, number) for number in threads}
        return found | {(PROCESS, 0)} if _has_children() else found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _reap() -> None:
    """Takes note of children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork_once() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _has_made_a_context() -> bool:
    cuda: Any = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())
