"""The paths of an archive's members: each one plain and relative, all of them one possible tree."""

from __future__ import annotations

PATH_MAX_BYTES = 4096
"""Linux's PATH_MAX."""
COMPONENT_MAX_BYTES = 255
"""Linux's NAME_MAX."""
PATH_MAX_DEPTH = 64
"""Folders in folders; bounds the work of looking at every folder above a file."""


def clean_path(raw: bytes, *, folder: bool) -> str:
    """The member's path without a leading `./` and, for a folder, without its closing slash.

    `""` is the root folder itself. Raises ValueError with the reason for a path that another reader
    could understand differently, or that could leave the folder it is unpacked into.
    """
    if b"\0" in raw:
        raise ValueError("its name has a NUL")
    if b"\\" in raw:
        raise ValueError("its name has a backslash")
    if len(raw) > PATH_MAX_BYTES:
        raise ValueError(f"its path has {len(raw)} bytes (limit {PATH_MAX_BYTES})")
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise ValueError("its name is not UTF-8") from None
    if name.startswith("/"):
        raise ValueError("its path is absolute")
    if folder:
        if name in (".", "./"):
            return ""
        name = name.removesuffix("/")
    name = name.removeprefix("./")
    _check_components(name.split("/"))
    return name


def _check_components(components: list[str]) -> None:
    if components == [""]:
        raise ValueError("its name is empty")
    if ".." in components:
        raise ValueError("its path has a '..'")
    if "" in components or "." in components:
        raise ValueError("its path has an empty or '.' component")
    if len(components) > PATH_MAX_DEPTH:
        raise ValueError(f"it lies {len(components)} folders deep (limit {PATH_MAX_DEPTH})")
    longest = max(len(component.encode()) for component in components)
    if longest > COMPONENT_MAX_BYTES:
        raise ValueError(f"a component has {longest} bytes (limit {COMPONENT_MAX_BYTES})")


class PathTree:
    """The paths seen so far: no two the same, no file used as a folder."""

    def __init__(self) -> None:
        self._is_folder: dict[str, bool] = {}

    def add(self, path: str, *, folder: bool) -> None:
        """Raises ValueError with the reason when `path` cannot stand beside those before it."""
        if path in self._is_folder:
            raise ValueError("its path is there twice")
        self._check_above(path)
        self._is_folder[path] = folder

    def check(self) -> None:
        """Checks all paths again, for a file that came after paths below it.

        To be called once, at the end: remembering each implied folder would cost memory that grows
        with depth times length of every path. Raises ValueError.
        """
        for path in self._is_folder:
            self._check_above(path)

    def _check_above(self, path: str) -> None:
        slash = path.find("/")
        while slash != -1:
            if self._is_folder.get(path[:slash]) is False:
                raise ValueError(f"{path[:slash]!r} is a file and a folder")
            slash = path.find("/", slash + 1)
