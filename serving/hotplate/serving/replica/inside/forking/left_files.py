"""The files that imports leave in the folder for temporary files, where homes lie too: libraries
make caches and settings there, remember where, and find them later. Each fork has such a folder of
its own, which is empty. Python >= 3.9, standard library only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple, Union

MOST_BYTES = 4 << 20
"""Of all of them: each fork writes them anew, and the template has them in its memory."""
MOST_FILES = 1000
_MOUNT_POINT = 4
"""Field of /proc/PID/mountinfo (proc(5))."""


class LeftFile(NamedTuple):
    path: str
    mode: int
    content: Union[bytes, str, None]  # noqa: UP007
    """Of a file; where a link leads; None = a folder."""


class LeftFiles:
    """What is in a folder now, but for sockets, pipes and what is mounted there."""

    def __init__(self, folder: str) -> None:
        """ "" stands for no folder."""
        self._folder = folder
        self._files: list[LeftFile] = []
        self._bytes = 0
        self._mounts = _mount_points()
        self._read()

    def sentence(self) -> str:
        """Why forks cannot be given them; "" if they can."""
        if self._bytes > MOST_BYTES or len(self._files) > MOST_FILES:
            return (
                f"imports left more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB in "
                f"{self._folder}"
            )
        return ""

    def put(self) -> None:
        """Makes those of them that are not there."""
        for path, mode, content in self._files:
            with suppress(OSError):  # it is there, or the disk is full
                if content is None:
                    os.mkdir(path, mode)
                elif isinstance(content, str):
                    os.symlink(content, path)
                else:
                    with open(
                        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
                    ) as file:
                        file.write(content)

    def _read(self) -> None:
        folders = [self._folder] if self._folder else []
        while folders and not self.sentence():
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if self._note(entry):
                        folders.append(entry.path)
                    if self.sentence():
                        return

    def _note(self, entry: os.DirEntry[str]) -> bool:
        """Whether it is a folder to look into."""
        if any(f"{mount}/".startswith(f"{entry.path}/") for mount in self._mounts):
            return False
        mode = entry.stat(follow_symlinks=False).st_mode & 0o777
        if entry.is_symlink():
            self._files.append(LeftFile(entry.path, mode, os.readlink(entry.path)))
        elif entry.is_dir():
            self._files.append(LeftFile(entry.path, mode, None))
            return True
        elif entry.is_file():
            with open(entry.path, "rb") as file:
                content = file.read(MOST_BYTES + 1)
            self._bytes += len(content)
            self._files.append(LeftFile(entry.path, mode, content))
        return False


def _mount_points() -> list[str]:
    """Of this process; paths with spaces are written otherwise, and are not found."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        return [line.split()[_MOUNT_POINT] for line in mounts]
