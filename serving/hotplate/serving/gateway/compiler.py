"""Compiles the gateway's request path with mypyc, if mypy and a C compiler are installed.

`make install` runs it. If that fails, the gateway runs as plain Python instead, which costs about
half as much again for each request; so a failed build is no error of the install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from hotplate.serving.gateway.compiled import MODULES, PACKAGE, builds, folder, source

LIMIT_S = 600.0
"""A build takes half a minute of one core, and up to three minutes on a busy machine."""
BUILDING = "building-"
MYPY = """[mypy]
namespace_packages = True
explicit_package_bases = True
ignore_missing_imports = True
follow_imports = silent
"""


class NotCompiled(Exception):
    """Why there is no build, as the second half of a sentence."""


def missing() -> str:
    """What this machine lacks to compile; empty = nothing."""
    if find_spec("mypyc") is None or find_spec("setuptools") is None:
        return "mypy is not installed"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        return "there is no C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's C headers are not installed"
    return ""


def build() -> Path:
    """The folder with the build of these sources, made if it is not there. Raises NotCompiled."""
    target = folder()
    if target.is_dir():
        return target
    if lacking := missing():
        raise NotCompiled(lacking)
    builds().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=builds(), prefix=BUILDING) as temporary:
        made = Path(temporary, "made")
        _run([sys.executable, "-m", f"{PACKAGE}.compiler", temporary], dict(os.environ))
        # That it can be imported, and is what is imported, is seen before anybody has to use it.
        _run(
            [sys.executable, "-c", _CHECK],
            {**os.environ, "PYTHONPATH": str(made)},
        )
        for earlier in builds().iterdir():
            if earlier.is_dir() and not earlier.name.startswith(BUILDING):
                shutil.rmtree(earlier, ignore_errors=True)
        made.rename(target)
    return target


_CHECK = f"""
import {PACKAGE}.server
from {PACKAGE}.compiled import is_used
assert is_used(), "the sources were imported instead"
"""


def _run(command: Sequence[str], environ: dict[str, str]) -> None:
    log = builds() / "build.log"
    try:
        with log.open("wb") as output:
            subprocess.run(
                command, env=environ, stdout=output, stderr=output, timeout=LIMIT_S, check=True
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotCompiled(f"it failed ({log} has why): {type(error).__name__}") from error


def compile_into(temporary: Path) -> None:
    """Compiles the modules into `made` below this folder."""
    from mypyc.build import mypycify
    from setuptools import setup

    import hotplate

    config = temporary / "mypy.ini"
    config.write_text(MYPY)
    roots = [str(Path(portion).parent) for portion in hotplate.__path__]
    os.environ["MYPYPATH"] = os.pathsep.join(roots)
    flags = ["--config-file", str(config), "--cache-dir", str(temporary / "cache")]
    sources = [str(source(module)) for module in MODULES]
    # The second level of optimization takes twice as long and measured no faster.
    extensions = mypycify(
        [*flags, *sources], opt_level="1", debug_level="0", target_dir=str(temporary / "c")
    )
    os.chdir(temporary)  # away from any project's own settings
    built = ["build_ext", "--build-lib", "made", "--build-temp", "objects"]
    setup(name="hotplate-gateway", ext_modules=extensions, packages=[], script_args=built)


def main(arguments: Sequence[str]) -> int:
    if arguments:
        compile_into(Path(arguments[0]))
        return 0
    try:
        build()
        print("The gateway is compiled.")
    except NotCompiled as reason:
        print(f"The gateway runs as plain Python, not compiled: {reason}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
