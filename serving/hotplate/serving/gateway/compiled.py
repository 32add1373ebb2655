"""The gateway's request path, compiled if this environment has a build of it.

The sources are plain Python and the only truth. A build of them (`compiler.py`) is a folder of the
environment, named by a digest of all the gateway's sources and of its Python's ABI. It is used when
that folder is first on the path; if a source has changed since, no folder has the name, and plain
Python runs.

    python -m hotplate.serving.gateway.compiler                           builds it
    HOTPLATE_GATEWAY__COMPILED=false hotplate gateway ...                 does not use it
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
"""What every request passes through. All their files are compiled, because a compiled class with a
base that is not, or calls between the two, cost every request more without a notice."""
FILES = (
    "internal_listener",
    "limits",
    "route_server",
    "shared_listener",
    "sockets.dialing",
    "tasks.control_plane_exchange",
    "tasks.execution",
)
"""Files elsewhere that share classes with them."""
APART = frozenset({"protocol.priority", "protocol.version_mark"})
"""Constants that the store imports too: `hotplate gateway` has imported them before `use`."""
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
    """The folder of the environment with all builds."""
    return Path(sys.prefix, "lib", "hotplate-gateway")


def source(module: str) -> Path:
    """The file of one of `MODULES`."""
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py")


def folder() -> Path:
    """The folder of the build of these sources for this Python; it need not exist."""
    digest = blake2b(digest_size=12)
    # Python 3.11.2 takes what 3.11.7 has built; the suffix has the two numbers that count.
    digest.update(f"{sysconfig.get_config_var('EXT_SUFFIX')}\n".encode())
    for path in sorted(SOURCES.rglob("*.py")):
        name = str(path.relative_to(SOURCES))
        digest.update(b"%b\n%d\n" % (name.encode(), path.stat().st_size))
        digest.update(path.read_bytes())
    return builds() / digest.hexdigest()


def use(environ: Mapping[str, str]) -> None:
    """Has this process use the build, if there is one and the environment allows it. If a module of
    it was imported as Python already it is too late, because the two do not mix."""
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
