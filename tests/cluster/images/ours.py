"""The two images of this tree: the product, and what environments are built and replicas run in.

What both stand on is the same layer, so that a node has it once. The second one has nothing of the
platform's dependencies: a bento would find them among its own.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from hotplate.serving.gateway import compiler
from tests.cluster.errors import TestClusterError
from tests.cluster.images.debian import USER, base_layer
from tests.cluster.images.interpreter import compile_below, loads
from tests.cluster.images.layers import Layer, unpacked
from tests.cluster.images.oci import Archive, Image
from tests.cluster.layout import REPOSITORY, Layout

NAMES = ("hotplate", "hotplate-runtime")
_LIBRARY = "docker.io/library"
"""What containerd adds to a name that says no registry; nothing is asked there."""
_PACKAGES = "usr/local/lib/python3.11/dist-packages"
"""Debian's interpreter looks there without being told."""
_GATEWAYS = "usr/lib/hotplate-gateway"
"""Where it finds the gateway's build, as `compiled.py` says."""
_PRODUCT = ("--no-dev", "--extra=kubernetes", "--extra=postgresql")
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}
_PROGRAM = """\
#!/usr/bin/python3.11
import sys
from hotplate.platform.program import main
sys.exit(main())
"""


def version() -> str:
    """The product's."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def reference(name: str) -> str:
    """As pods name the image; what they leave out of it, containerd adds."""
    return f"{name}:{version()}"


def archives(layout: Layout) -> list[Archive]:
    """Those of `NAMES`, whether they are there or not."""
    return [Archive(layout.images / f"{name}.tar") for name in NAMES]


def ensure(layout: Layout) -> Iterator[str]:
    """Writes what has changed since it was written; tells what it made."""
    base = base_layer()
    with tempfile.TemporaryDirectory() as folder:
        uv = _packages("uv", _locked("--only-group", "installer"), base)
        dependencies = _packages("dependencies", _locked(*_PRODUCT), base)
        product = _product(_wheel(Path(folder)), _gateway(), base)
        for layer in (base, uv, dependencies, product):
            if layer.ensure():
                yield f"layer {layer.name} made"
    layers = {"hotplate": [base, dependencies, product], "hotplate-runtime": [base, uv]}
    entry_points = {"hotplate": ["hotplate"], "hotplate-runtime": ["python3.11"]}
    for name, archive in zip(NAMES, archives(layout), strict=True):
        image = Image(
            f"{_LIBRARY}/{reference(name)}",
            [layer.place for layer in layers[name]],
            entry_points[name],
            user=f"{USER}:{USER}",
            environment=_ENVIRONMENT,
        )
        if image.ensure(archive):
            yield f"{reference(name)} written to {archive.place}"


def _packages(name: str, requirements: str, base: Layer) -> Layer:
    """What the requirements name, from whichever index uv is told to ask."""

    def fill(root: Path) -> None:
        listed = root / "requirements.txt"
        listed.write_text(requirements)
        _install(root, "--require-hashes", "--requirement", str(listed))
        listed.unlink()
        _compile(root, base)

    return Layer(name, [requirements], fill)


def _product(wheel: Path, gateway: Path | None, base: Layer) -> Layer:
    def fill(root: Path) -> None:
        _install(root, str(wheel))
        if gateway is not None and _loads(gateway, base):
            shutil.copytree(gateway, root / _GATEWAYS / gateway.name)
        program = root / "usr/local/bin/hotplate"
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        _compile(root, base)

    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Layer("product", [digest, gateway.name if gateway else "not compiled"], fill)


def _gateway() -> Path | None:
    """The compiled request path, where this machine can compile it for the image's Python."""
    if sys.version_info[:2] != (3, 11):
        return None
    try:
        return compiler.build()
    except compiler.NotCompiled:
        return None


def _loads(gateway: Path, base: Layer) -> bool:
    """Whether the image can: what is compiled beside a newer C library it cannot."""
    with unpacked(base) as interpreter:
        return all(loads(library, interpreter) for library in gateway.rglob("*.so"))


def _install(root: Path, *what: str) -> None:
    """Installs below `_PACKAGES`, and leaves out what says where and when that was done."""
    target = root / _PACKAGES
    machine = f"{platform.machine()}-manylinux_2_28"
    flags = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--link-mode=copy"]
    _uv("pip", "install", *flags, f"--python-platform={machine}", f"--target={target}", *what)
    programs = target / "bin"
    (root / "usr/local/bin").mkdir()
    if (uv := programs / "uv").exists():
        uv.rename(root / "usr/local/bin/uv")
    shutil.rmtree(programs, ignore_errors=True)
    for name in ("*.dist-info/RECORD", "*.dist-info/direct_url.json", "*.dist-info/uv_cache.json"):
        for record in target.glob(name):
            record.unlink()
    (target / ".lock").unlink(missing_ok=True)


def _compile(root: Path, base: Layer) -> None:
    with unpacked(base) as interpreter:
        compile_below(root / _PACKAGES, root, interpreter)


def _wheel(folder: Path) -> Path:
    python = REPOSITORY / ".venv/bin/python"
    flags = ["--no-build-isolation", f"--python={python}", f"--out-dir={folder}"]
    _uv("build", "--quiet", "--wheel", *flags, str(REPOSITORY))
    return next(folder.glob("*.whl"))


def _locked(*flags: str) -> str:
    """What uv.lock names, by version and hash."""
    plain = ["--frozen", "--quiet", "--no-header", "--no-annotate", "--no-emit-project"]
    return _uv("export", *plain, *flags)


def _uv(*arguments: str) -> str:
    uv = str(REPOSITORY / ".venv/bin/uv")
    done = subprocess.run(
        [uv, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()[-3:]
        raise TestClusterError(f"uv {arguments[0]} failed: {' '.join(words)}")
    return done.stdout
