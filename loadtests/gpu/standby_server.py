"""A standby that becomes a `replica_server`; before that it is the platform's own program."""

from __future__ import annotations

from functools import partial

from hotplate.serving.replica.inside.standby import main
from hotplate.serving.replica.inside.worker import run
from loadtests.gpu.replica_server import serve

if __name__ == "__main__":
    run(partial(main, serve))
