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
    "admission.cors",
    "admission.gate",
    "admission.internal_callers",
    "admission.terms",
    "callers.connections",
    "callers.downstream",
    "callers.half_close",
    "callers.host",
    "callers.own_responses",
    "callers.timeouts",
    "callers.transport",
    "callers.turns",
    "http1.chunk_reader",
    "http1.head_cache",
    "http1.multipart",
    "http1.request_head",
    "http1.request_reader",
    "http1.response_head",
    "http1.response_reader",
    "limits",
    "protocol.routes",
    "proxy.abandoned",
    "proxy.alarm",
    "proxy.body_gate",
    "proxy.caller",
    "proxy.dispatcher",
    "proxy.exchange",
    "proxy.forwarding",
    "proxy.hangups",
    "proxy.retry",
    "proxy.route_context",
    "proxy.slow_bodies",
    "proxy.spool",
    "proxy.upload",
    "queue.adaptive_limit",
    "queue.changes",
    "queue.deadlines",
    "queue.discipline",
    "queue.fairness",
    "queue.feasibility",
    "queue.load_times",
    "queue.overflow",
    "queue.replica_slots",
    "queue.service_time",
    "queue.ticket",
    "replicas.call",
    "replicas.connection_pool",
    "replicas.connection_pools",
    "replicas.relay_pool",
    "replicas.response_source",
    "replicas.upstream",
    "route_server",
    "sockets.dialing",
    "tasks.control_plane_exchange",
    "tasks.execution",
    "telemetry.counters",
    "telemetry.histogram",
)
"""What every request passes through, and what shares classes with it."""
SETTING = "HOTPLATE_GATEWAY__COMPILED"
OFF = frozenset({"0", "false", "no", "off"})


def builds() -> Path:
    """The folder of the environment in which builds lie."""
    return Path(sys.prefix, "lib", "hotplate-gateway")


def source(module: str) -> Path:
    """The file of one of `MODULES`."""
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py")


def folder() -> Path:
    """Where the build of these sources for this Python is, if there is one."""
    digest = blake2b(digest_size=12)
    digest.update(f"{sys.version}\n{sysconfig.get_config_var('EXT_SUFFIX')}\n".encode())
    for path in sorted(SOURCES.rglob("*.py")):
        name = str(path.relative_to(SOURCES))
        digest.update(b"%b\n%d\n" % (name.encode(), path.stat().st_size))
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
    return not (import_module(f"{PACKAGE}.queue.discipline").__file__ or "").endswith(".py")


def main() -> int:
    if not folder().is_dir():
        print("the gateway is not compiled here, or has changed since", file=sys.stderr)
        return 1
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
