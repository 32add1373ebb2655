"""The devices of a program: the usual ones, terminals and shared memory of its own, GPUs."""

from __future__ import annotations

import os
import stat

from hotplate.deploy.sandbox.launcher.kernel import NODEV, NOEXEC, NOSUID, Kernel

_USUAL = {"null", "zero", "full", "random", "urandom", "tty"}
_GPUS = ("nvidia", "dri", "kfd", "dxg")
"""How the names of GPUs, and of folders with some, begin."""
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}


class Devices:
    """Taken when it is made, from a `/dev` that `fill` covers. All of it raises OSError."""

    FOLDER = "/dev"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        names = sorted(os.listdir(self.FOLDER))
        taken = [name for name in names if name in _USUAL or name.startswith(_GPUS)]
        self._trees = {name: kernel.clone_tree(f"{self.FOLDER}/{name}") for name in taken}
        self.groups = sorted(set(_groups([name for name in taken if name.startswith(_GPUS)])))
        """To which one has to belong to use a GPU here."""

    def fill(self) -> None:
        """Put them over all that there is."""
        kernel = self._kernel
        kernel.mount("tmpfs", self.FOLDER, NOSUID | NOEXEC, "size=1m,mode=755")
        for name, tree in self._trees.items():
            path = f"{self.FOLDER}/{name}"
            if stat.S_ISDIR(os.fstat(tree).st_mode):
                os.mkdir(path)
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            kernel.attach_tree(tree, path)
            os.close(tree)
        for folder, kind, flags, options in (
            ("pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620"),
            ("shm", "tmpfs", NOSUID | NODEV, "mode=1777"),
        ):
            os.mkdir(f"{self.FOLDER}/{folder}")
            kernel.mount(kind, f"{self.FOLDER}/{folder}", flags, options)
        for name, target in _LINKS.items():
            os.symlink(target, f"{self.FOLDER}/{name}")


def _groups(names: list[str]) -> list[int]:
    """Of the devices that their group may use and others may not; never root's."""
    found = []
    for name in names:
        path = f"{Devices.FOLDER}/{name}"
        nodes = [
            path,
            *(f"{path}/{each}" for each in (os.listdir(path) if os.path.isdir(path) else ())),
        ]
        for node in nodes:
            about = os.stat(node)
            if stat.S_ISCHR(about.st_mode) and about.st_mode & 0o066 == 0o060 and about.st_gid:
                found.append(about.st_gid)
    return found
