"""`hotplate` as a person starts it: Ctrl-C ends it without a traceback from its first moment on.

A command imports for up to a second, and an interrupt among imports has no place at which it could
be caught. Until the command runs, the signal ends the process, as it ends programs that take no
notice of it; from then on it is Python's exception, which commands use to end in order.

The first process of a container is spared by the kernel from signals for which it has no handler:
so it has one for SIGTERM from the beginning, or a pod that is deleted while it starts would go on
for its whole grace period.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

FIRST = 1
"""The process id of a container's first process."""


def main() -> int:
    """Run the command of `sys.argv`; its exit status."""
    if os.getpid() == FIRST:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    python_handler = signal.default_int_handler
    is_ours = signal.getsignal(signal.SIGINT) is python_handler  # else it is to be ignored
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    cli = import_module("hotplate.platform.cli")
    arguments = cli.parsed()
    try:
        if is_ours:
            signal.signal(signal.SIGINT, python_handler)
        status: int = cli.run(arguments)
    except KeyboardInterrupt:
        status = cli.INTERRUPTED
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status


if __name__ == "__main__":
    sys.exit(main())
