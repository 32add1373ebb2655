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
FOLDERS = (
    "admission",
    "callers",
    "http1",
    "protocol",
    "proxy",
    "queue",
    "replicas",
    "telemetry",
)
"""What every request passes through. All their files are compiled: where a class is and its base is
not, or one calls another that is not, requests cost more and nothing says so."""
FILES = (
    "limits",
    "route_server",
    "sockets.dialing",
    "tasks.control_plane_exchange",
    "tasks.execution",
)
"""What shares classes with them elsewhere."""
APART = frozenset({"protocol.priority"})
"""A constant that the store reads too: `hotplate gateway` has imported it before `use`."""
MODULES = tuple(
    sorted(
        {
            f"{folder}.{path.stem}"
            for folder in FOLDERS
            for path in (SOURCES / folder).glob("*.py")
        }.union(FILES).difference(APART)
    )
)
"""By their names below the package."""
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
