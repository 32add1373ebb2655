"""The gateway's request path, compiled where this environment has had it built.

The sources are plain Python and the only truth. A build of them (`compiler.py`) lies in a folder of
the environment, named by a digest of all the gateway's sources and of the Python that it is for. To
use it is to have that folder first on the path; where a source has changed since, no folder has
the name, and plain Python runs.

    python -m hotplate.serving.gateway.compiler                           builds it
    HOTPLATE_GATEWAY__COMPILED=false hotplate gateway ...                 leaves it
    PYTHONPATH=$(python -m hotplate.serving.gateway.compiled) pytest ...  uses it in any program
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

PACKAGE = "hotplate.serving.gateway"
SOURCES = Path(__file__).parent
MODULES = (
    "abandoned",
    "adaptive_limit",
    "admission",
    "alarm",
    "answer_head",
    "arrivals",
    "callers",
    "chances",
    "changes",
    "chunk_reader",
    "cors",
    "counters",
    "deadlines",
    "dialing",
    "estimate",
    "exchange",
    "fairness",
    "front",
    "half_close",
    "hangups",
    "head_memo",
    "histogram",
    "incoming",
    "limits",
    "load_times",
    "multipart",
    "order",
    "own_answers",
    "patience",
    "phase",
    "pool",
    "pools",
    "queueing",
    "relay",
    "request_head",
    "request_reader",
    "room",
    "route_server",
    "routes",
    "sending",
    "share",
    "siblings",
    "slots",
    "spool",
    "tap",
    "task_exchange",
    "task_run",
    "upstream",
    "waiting",
)
"""What every request passes through, and what shares classes with it."""
SETTING = "HOTPLATE_GATEWAY__COMPILED"
OFF = frozenset({"0", "false", "no", "off"})


def builds() -> Path:
    """The folder of the environment in which builds lie."""
    return Path(sys.prefix, "lib", "hotplate-gateway")


def folder() -> Path:
    """Where the build of these sources for this Python is, if there is one."""
    digest = blake2b(digest_size=12)
    digest.update(f"{sys.version}\n{sysconfig.get_config_var('EXT_SUFFIX')}\n".encode())
    for path in sorted(SOURCES.glob("*.py")):
        digest.update(b"%b\n%d\n" % (path.name.encode(), path.stat().st_size))
        digest.update(path.read_bytes())
    return builds() / digest.hexdigest()


def use(environ: Mapping[str, str]) -> None:
    """Has this process use the build, if there is one and the environment does not say otherwise.

    Where a module of it has been imported as Python already it is too late: the two do not mix.
    """
    if environ.get(SETTING, "").lower() in OFF:
        return
    if any(f"{PACKAGE}.{module}" in sys.modules for module in MODULES):
        return
    build = folder()
    if build.is_dir():
        sys.path.insert(0, str(build))


def is_used() -> bool:
    """Whether this process runs the compiled modules."""
    return not (import_module(f"{PACKAGE}.queueing").__file__ or "").endswith(".py")


def main() -> int:
    if not folder().is_dir():
        print("the gateway is not compiled here, or has changed since", file=sys.stderr)
        return 1
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
