"""The process that waits within a program's walls and shows it more of this machine's files later.

A process of its own: the program has no power to show anything and cannot look into it, for it is
outside of the program's processes.
"""

from __future__ import annotations

import os

from hotplate.deploy.sandbox.launcher.instructions import Instructions
from hotplate.deploy.sandbox.launcher.kernel import PR_SET_DUMPABLE, Kernel
from hotplate.deploy.sandbox.launcher.mounts import Mounts

SHOWN = b"shown "
"""Said by the helper when a request was carried out, and by which process, which ends then;
anything else is why it was not."""
_REQUEST_BYTES = 1 << 20
_DESCRIPTORS_MAX = 1 << 20


def wait_at(helper: int, kernel: Kernel, files: Mounts) -> None:
    """Show what is asked for there, once, and say so or why that could not be."""
    kernel.prctl(PR_SET_DUMPABLE, 0)
    last = -1
    for kept in (*sorted([helper, *files.descriptors]), _DESCRIPTORS_MAX):
        os.closerange(last + 1, kept)
        last = kept
    request = os.read(helper, _REQUEST_BYTES)
    if not request:
        return
    answer = SHOWN
    try:
        files.show(Instructions(request).shown)
    except OSError as error:
        answer = os.fsencode(f"{error.filename}: {error.strerror}")
    os.write(helper, answer)
