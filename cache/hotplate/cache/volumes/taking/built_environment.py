"""What a build has left of an environment, and why it would run in no other pod."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from hotplate.cache.errors import BadEnvironment
from hotplate.cache.volumes.taking.foreign_tree import ForeignTree
from hotplate.cache.volumes.taking.links import TreeLinks
from hotplate.cache.volumes.ticket import FOLDER

HOME = f"{FOLDER}/env"
"""Where every pod has its environment, those that build one too."""
PYTHON = "bin/python"
_INTERPRETER = re.compile(r"/usr(/local)?/bin/python3(\.[0-9]+)?")
_BUILDS_ALONE = ("/scratch", "/tmp", "/var/tmp", "/dev/shm")
"""Folders of a pod that no other pod shares."""
_FIRST_LINE = 4096


def check(tree: ForeignTree, interpreter: str) -> None:
    """Raises BadEnvironment. `interpreter` is the runtime's, to which `bin/python` leads; "" = one
    of a usual name, as the control plane has not said which."""
    found = tree.links.get(PYTHON, "")
    right = found == interpreter if interpreter else _INTERPRETER.fullmatch(found)
    if not right:
        raise BadEnvironment(
            f"the build has put another {PYTHON} into its environment than the link to "
            f"{interpreter or 'the interpreter'}; leave the one there"
        )
    TreeLinks(tree.links, found).check()
    for path in tree.sizes:
        if path.startswith("bin/") and path.count("/") == 1:
            _check_script(path, tree.head(path, _FIRST_LINE))


def _check_script(path: str, head: bytes) -> None:
    """A script names its program in its first line. What has none there runs nowhere, which is not
    ours to say; what runs in this pod only looks as if it were fine."""
    first = head.partition(b"\n")[0]
    words = first.removeprefix(b"#!").split()
    if not first.startswith(b"#!") or not words:
        return
    program = PurePosixPath(words[0].decode(errors="replace"))
    if any(program.is_relative_to(folder) for folder in _BUILDS_ALONE):
        raise BadEnvironment(
            f"the script {path!r} runs only in the pod that has built it, since its first line "
            f"names {str(program)[:200]!r}; have the bento's commands install it into {HOME}"
        )
