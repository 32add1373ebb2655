"""What a program sees of this machine's files: all to read, but for what is hidden."""

from __future__ import annotations

import os
import stat

from hotplate.deploy.sandbox.launcher.devices import Devices
from hotplate.deploy.sandbox.launcher.instructions import DEVICES, READ, WRITE, Instructions
from hotplate.deploy.sandbox.launcher.kernel import (
    ID_MAPPED,
    NO_SUID,
    NODEV,
    NOSUID,
    READ_ONLY,
    Kernel,
)

_TEMPORARY = ("/tmp", "/var/tmp")
_SMALL = "size=1m,mode=755"


class Mounts:
    """Of one program: put together by `make`, and added to by `show`."""

    def __init__(self, kernel: Kernel, plan: Instructions) -> None:
        """Opens what will be covered. Raises OSError, as all of it does."""
        self._kernel = kernel
        self._plan = plan
        self._temporary = [path for path in _TEMPORARY if plan.own and _is_folder(path)]
        self._devices = Devices(kernel) if DEVICES in plan.walls else None
        hidden = [*filter(_is_folder, plan.hidden), *self._temporary]
        hidden += [Devices.FOLDER] if self._devices is not None else []
        outermost = [path for path in hidden if not path.startswith(_inside(hidden))]
        self._covered = {
            path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in sorted(set(outermost))
        }
        self._known: set[tuple[str, str]] = set()
        """What has been shown."""

    @property
    def descriptors(self) -> list[int]:
        """Through these, and through nothing else, we see what is covered."""
        return list(self._covered.values())

    @property
    def groups(self) -> list[int]:
        """Whom a program has to belong to for its devices."""
        return self._devices.groups if self._devices is not None else []

    def make(self, users: int, sharers: int = -1) -> None:
        """`users` is the namespace of the program's ids, a descriptor, or -1 where it is ours.

        `sharers`: the same, for what it shares with others; -1 where there is none.
        """
        kernel, plan = self._kernel, self._plan
        shown = [
            (path, self._copy(path, verb)) for path, verb in plan.shown if self._is_new(path, verb)
        ]
        for path, tree in shown if sharers >= 0 else []:
            if path in plan.shared:
                self._own(tree, sharers)
        own = self._copy(plan.own, WRITE) if plan.own else -1
        temporary = {path: self._copy(f"{plan.own}/tmp", WRITE) for path in self._temporary}
        layers = {path: (self._layer(path, users), more) for path, more in plan.layers}
        kernel.set_attributes("/", READ_ONLY | NO_SUID)
        for folder in self._covered:
            if folder in temporary:
                kernel.attach_tree(temporary[folder], folder)
            elif self._devices is None or folder != Devices.FOLDER:
                kernel.mount("tmpfs", folder, NOSUID | NODEV, _SMALL)
            else:
                self._devices.fill()
        if plan.own:
            self._attach(own, plan.own)
        for path, tree in sorted([*shown, *((path, tree) for path, (tree, _) in layers.items())]):
            self._attach(tree, path)
            if path in layers:
                self._lay(path, layers[path][1], users)
        self._seal(READ_ONLY, 0)

    def show(self, lines: list[tuple[str, str]]) -> None:
        """More paths, each with READ or WRITE."""
        self._seal(0, READ_ONLY)
        for path, verb in lines:
            if self._is_new(path, verb):
                tree = self._copy(path, verb)
                if verb == WRITE:
                    self._kernel.set_attributes(tree, 0, READ_ONLY)
                self._attach(tree, path)
        self._seal(READ_ONLY, 0)

    def _is_new(self, path: str, verb: str) -> bool:
        """Whether it has to be mounted; what is not hidden is read anyway."""
        if (path, verb) in self._known or (verb == READ and self._cover(path) is None):
            return False
        self._known.add((path, verb))
        return True

    def _cover(self, path: str) -> str | None:
        return next((each for each in self._covered if path.startswith(f"{each}/")), None)

    def _copy(self, path: str, verb: str) -> int:
        cover = self._cover(path)
        if cover is None:
            tree = self._kernel.clone_tree(path)
        else:
            tree = self._kernel.clone_tree(path[len(cover) + 1 :], self._covered[cover])
        self._kernel.set_attributes(tree, NO_SUID | (READ_ONLY if verb == READ else 0))
        return tree

    def _layer(self, path: str, users: int) -> int:
        """The folder below a layer, with its owners known among the program's users."""
        tree = self._copy(path, READ)
        if users >= 0:
            self._own(tree, users)
        return tree

    def _own(self, tree: int, users: int) -> None:
        """Have files there be theirs that the namespace says: root's, say, its own root's."""
        try:
            self._kernel.set_attributes(tree, ID_MAPPED, users=users)
        except OSError:
            return  # not every file system can do it: then nobody inside changes anything there

    def _lay(self, path: str, own: str, users: int) -> None:
        """Have what is written below `path` lie in a folder of the program's own, if it can be."""
        descriptors = [os.open(each, os.O_PATH) for each in (path, f"{own}/upper", f"{own}/work")]
        lower, upper, work = (f"/proc/self/fd/{each}" for each in descriptors)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        if users < 0:
            options += ",userxattr"
        try:
            self._kernel.mount("overlay", path, NOSUID | NODEV, options)
        except OSError:
            return  # not upon every file system: then it is only read
        finally:
            for each in descriptors:
                os.close(each)

    def _attach(self, tree: int, path: str) -> None:
        """Have it at its path, which is made where it is not there."""
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(path, exist_ok=True)
        elif not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        self._kernel.attach_tree(tree, path)
        os.close(tree)

    def _seal(self, more: int, less: int) -> None:
        """The folders in which the ways to what is shown were made."""
        for folder in self._covered:
            if folder not in self._temporary:
                self._kernel.set_attributes(folder, more, less, below=False)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _inside(folders: list[str]) -> tuple[str, ...]:
    """How paths below these begin."""
    return tuple(f"{folder}/" for folder in folders)
