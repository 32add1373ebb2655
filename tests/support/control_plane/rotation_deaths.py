"""Rotates the keys of two secrets, and is killed (SIGKILL) at a line of it, then at a later one …

`… FOLDER FIRST STEP`: at each STEP-th line, beginning with the FIRST. Prints how often it was
killed, once nothing was lost at any of these moments.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from hotplate.platform.processes import key_file
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.spec.secret_content import (
    SecretContent,
    SecretItem,
    SecretStage,
    SecretType,
)
from hotplate.platform.store import keyring, org_secrets
from hotplate.platform.store.database import Database
from hotplate.platform.store.org_secrets import encrypt_anew
from hotplate.platform.store.parts import Store

SOURCES = {module.__file__ for module in (key_file, keyring, org_secrets)}
NAMES = ("one", "two")


def opened(folder: Path) -> Store:
    """As a control plane opens it at its start."""
    keys = KeyFile(folder / "secret-keys")
    store = Store(Database(f"sqlite:///{folder}/hotplate.db"), keys=keys)
    keys.begin(store.secrets.encrypted())
    store.secrets.check_keys()
    return store


def made(folder: Path) -> None:
    store = opened(folder)
    ada = store.identities.ensure_user("acme", "ada", "ada@example.com")
    for name in NAMES:
        items = (SecretItem(f"{name}_key", size_bytes=5, value=f"value of {name}"),)
        content = SecretContent(SecretType.ENV, SecretStage.RUNTIME, items)
        store.secrets.create(ada, name, "", content)
    store.close()


def rotate(store: Store) -> None:
    store.secrets.add_key()
    asyncio.run(encrypt_anew(store.secrets))


def die_at(last: int) -> None:
    """At so many lines of our own from now on, in whichever thread."""
    lines = itertools.count(1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in SOURCES:
            return None
        if event == "line" and next(lines) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def survived(folder: Path, last: int) -> bool:
    """Whether a process that rotates there came to its end before that line."""
    child = os.fork()
    if child == 0:
        store = opened(folder)
        die_at(last)
        rotate(store)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0


def check(folder: Path) -> None:
    """Every value is read, and the next start goes on to the end."""
    store = opened(folder)
    values = [each.value for each in store.secrets.values("acme", NAMES)]
    assert values == [f"value of {name}" for name in NAMES], values
    asyncio.run(encrypt_anew(store.secrets))
    uses = [(use.encrypts, use.values) for use in store.secrets.key_uses()]
    assert uses == [(True, len(NAMES))], uses
    rotate(store)
    assert [each.value for each in store.secrets.values("acme", NAMES)] == values
    store.close()


def main(top: Path, first: int, step: int) -> None:
    before = top / "before"
    before.mkdir()
    made(before)
    for died, last in enumerate(itertools.count(first, step)):
        folder = top / str(last)
        shutil.copytree(before, folder)
        ended = survived(folder, last)
        check(folder)
        shutil.rmtree(folder)
        if ended:
            print(died)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
