"""What this pod's replica learns that later ones need not: what it imports and compiles.

The node's agent keeps it when it is asked to, and shows it to the next pods of the same kind. Only
what is new is worth asking for. Nobody waits for any of this, and nothing fails for want of it.
Python >= 3.9, standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

COMPILED, MODULES = "compiled", "modules.json"
"""Below the volume, what earlier replicas have left; below our own folder, what this one leaves."""
ASKED = b'{"keep": true}\n'
LOOK_S = 15.0
MOST_LOOKS = 32
"""How many looks pass at most before an agent is asked again that could not keep it."""
LAST_S = 3.0
"""How long the end of a pod waits for its agent."""
ANSWER_S = 600.0
MOST_FILES = 20_000
MOST_BYTES = 64 << 10
"""Of an answer."""
REFUSED = "bad_environment"
"""The code of an answer after which the same is not asked again."""


def begin(node: Path, own: Path) -> None:
    """Have a copy of what earlier replicas have compiled, for this one to add to."""
    if not (node / COMPILED).is_dir():
        return
    try:
        shutil.copytree(node / COMPILED, own / COMPILED, copy_function=shutil.copyfile)
    except OSError as error:  # a file that is there in part would be loaded
        shutil.rmtree(own / COMPILED, ignore_errors=True)
        print(f"What is compiled already could not be copied: {error}", file=sys.stderr)


class LearntFiles:
    """What there is in a replica's own folder beyond what is known. Looks on a thread."""

    def __init__(self, node: Path, own: Path, look_s: float = LOOK_S) -> None:
        """To be made before the replica has written anything."""
        self._door = node / "agent.sock"
        self._own = own
        self._look_s = look_s
        self._files = _files(own / COMPILED)
        self._modules = _modules(node / MODULES)
        self._failures = self._pauses = 0
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_again_and_again, daemon=True)
        with suppress(RuntimeError):  # the pod may have no more threads
            self._looking.start()

    def last(self) -> None:
        """The replica has ended: looks once more, and waits a little for it."""
        self._ended.set()
        if self._looking.is_alive():
            self._looking.join(LAST_S)

    def _look_again_and_again(self) -> None:
        while not self._ended.wait(self._look_s):
            self._look()
        self._pauses = 0
        self._look()

    def _look(self) -> None:
        """Has the agent keep what is new."""
        if self._pauses:
            self._pauses -= 1
            return
        files, modules = _files(self._own / COMPILED), _modules(self._own / MODULES)
        if files <= self._files and modules <= self._modules:
            return
        if _kept(str(self._door)):
            self._files, self._modules = self._files | files, self._modules | modules
            self._failures = 0
        else:
            self._pauses = min(1 << self._failures, MOST_LOOKS)
            self._failures += 1


def _kept(door: str) -> bool:
    """Whether the agent has kept it, or never will."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            agent.settimeout(ANSWER_S)
            agent.connect(door)
            agent.sendall(ASKED)
            with agent.makefile("rb") as said:
                answer = json.loads(said.readline(MOST_BYTES))
        return "kept" in answer or answer["error"]["code"] == REFUSED
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _files(folder: Path) -> frozenset[str]:
    """The paths of the files below, of `MOST_FILES` at most."""
    found: set[str] = set()
    for above, _, names in os.walk(folder):
        found.update(os.path.join(above, name) for name in names)
        if len(found) > MOST_FILES:
            break
    return frozenset(found)


def _modules(path: Path) -> frozenset[str]:
    """The names in a file; none where there is none."""
    with suppress(OSError, ValueError, TypeError):
        return frozenset(json.loads(path.read_bytes()))
    return frozenset()
