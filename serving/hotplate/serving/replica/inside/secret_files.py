"""Files of secrets: in memory, with links to them below `$BENTOML_HOME`.

Python >= 3.9, standard library only. A build runs this text as a program before each of its steps,
`-c TEXT PROGRAM ARGUMENT…`, with a JSON object on standard input as `place` takes it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

OWNER = ".of"
"""The file in a folder of memory that says whose it is, for who clears it away."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def place(home: str, given: dict[str, Any]) -> None:
    """Puts the texts `files`, by their paths below the home, into the `folder` in memory, which is
    made, each readable for its owner alone; and links to them into the home. `of` is kept beside
    them. No link that is there already is followed. Raises OSError with a sentence."""
    folder = given["folder"]
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        kept = os.open(folder, _FOLDER)
        try:
            if os.fstat(kept).st_uid != os.geteuid():
                raise OSError("it is another user's")
            _write(kept, OWNER, given["of"])
            for number, text in enumerate(given["files"].values()):
                _write(kept, str(number), text)
        finally:
            os.close(kept)
    except OSError as error:
        why = error.strerror or error
        raise OSError(
            f"The files of secrets cannot be put into memory at {folder} ({why}); ask 'hotplate "
            "doctor' which walls are missing here."
        ) from None
    for number, path in enumerate(given["files"]):
        try:
            _link(home, path, f"{folder}/{number}")
        except OSError as error:
            raise OSError(
                f"The file {path!r} of a secret cannot be put below $BENTOML_HOME "
                f"({error.strerror or error}); give it another path."
            ) from None


def _write(folder: int, name: str, text: str) -> None:
    with suppress(FileNotFoundError):  # of the step before
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o400, dir_fd=folder), "wb") as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), 0o400)


def _link(home: str, path: str, target: str) -> None:
    *folders, name = path.split("/")
    at = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=at)
            below = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        try:
            os.symlink(target, name, dir_fd=at)
        except FileExistsError:
            if os.readlink(name, dir_fd=at) != target:
                raise
    finally:
        os.close(at)


def main() -> None:
    """Places the files, and becomes the program that the arguments name."""
    given = json.load(sys.stdin)
    try:
        place(os.environ["BENTOML_HOME"], given)
    except OSError as error:
        sys.exit(str(error))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
