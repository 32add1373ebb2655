"""What a forked process must not have in common with its siblings: everything that is random or
unique is made anew. Python >= 3.9, standard library only.

Only what is imported is touched: the rest is made by its import. What asks the kernel each time
(`secrets`, `os.urandom`) needs nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

SEED_BYTES = 32


def _random(module: Any) -> None:
    module.seed()


def _numpy(module: Any) -> None:
    module.seed()


def _torch(module: Any) -> None:
    """The processor's generator. A GPU's is made with its context, in the child."""
    module.default_generator.seed()


def _uuid(module: Any) -> None:
    """Without the last time, version 1, 6 and 7 begin with a clock sequence or counter that is
    random again; and a node that is random is not kept."""
    for name in ("_node", "_last_timestamp", "_last_timestamp_v6", "_last_timestamp_v7"):
        if hasattr(module, name):
            setattr(module, name, None)


def _tempfile(module: Any) -> None:
    module._name_sequence = None
    module.tempdir = None


def _multiprocessing(module: Any) -> None:
    module.current_process().authkey = os.urandom(SEED_BYTES)


def _semaphores(module: Any) -> None:
    import tempfile

    module.SemLock._rand = tempfile._RandomNameSequence()  # type: ignore[attr-defined]


def _ssl(module: Any) -> None:
    """OpenSSL itself goes by the process's number, which may come again in another namespace."""
    module.RAND_add(os.urandom(SEED_BYTES), float(SEED_BYTES))


RESEEDED: dict[str, Callable[[Any], None]] = {
    "random": _random,
    "numpy.random": _numpy,
    "torch": _torch,
    "uuid": _uuid,
    "tempfile": _tempfile,
    "multiprocessing.process": _multiprocessing,
    "multiprocessing.synchronize": _semaphores,
    "ssl": _ssl,
}
"""By module: how it becomes unlike that of its siblings."""


def reseed() -> None:
    """Call it in each forked process before any code of a bento runs."""
    for name, renew in RESEEDED.items():
        module = sys.modules.get(name)
        if module is not None:
            renew(module)
