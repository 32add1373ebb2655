"""The programs of Kubernetes, built from Go modules.

Each folder of `modules/` pins with its `go.mod` and `go.sum` what the programs are built from. What
is built is kept in the user's cache folder by the digest of `go.sum`, and is never built again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import CannotRunHere, TestClusterError
from tests.cluster.layout import Layout, user_cache

_MODULES = Path(__file__).parent / "modules"
KUBERNETES_VERSION = "1.36.4"


@dataclass(frozen=True, slots=True)
class Program:
    """One that is built: its module below `modules/`, and its package."""

    name: str
    module: str
    package: str
    linking: str = ""


def _kubernetes(name: str) -> Program:
    """Without the stamps the servers call themselves v0.0.0, and clients disbelieve them."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
    linking = " ".join(
        f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items()
    )
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", linking)


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-proxy"),
    _kubernetes("kubectl"),
    Program("coredns", "coredns", "github.com/coredns/coredns"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
    Program("pause", "pause", "."),
    Program("echo", "echo", "."),
)


def missing() -> list[Program]:
    """The programs that have not been built yet."""
    return [program for program in PROGRAMS if not _built(program).exists()]


def link(layout: Layout) -> Iterator[str]:
    """Builds what has not been built, and links all into `.cluster/bin`; tells what it builds.

    CannotRunHere without Go; TestClusterError with the compiler's last words.
    """
    layout.binaries.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        built = _built(program)
        if not built.exists():
            yield f"building {program.name}"
            _build(program, built)
        place = layout.binaries / program.name
        if not place.is_symlink() or place.readlink() != built:
            place.unlink(missing_ok=True)
            place.symlink_to(built)


def module_folder(module: str) -> Path:
    """The folder of a Go module that `modules/` requires, in Go's own cache.

    `module`: its path and version, as in sigs.k8s.io/kwok@v0.8.0.
    """
    path, _, version = module.partition("@")
    said = _go("list", "-m", "-f", "{{.Dir}}", path, folder=_MODULES / "kwok").strip()
    if not said.endswith(version):
        raise TestClusterError(f"{path} is at {said}, not at {version}; run go mod download")
    return Path(said)


def _built(program: Program) -> Path:
    folder = _MODULES / program.module
    digest = hashlib.blake2b(program.linking.encode(), digest_size=16)
    for file in (folder / "go.sum", *folder.glob("*.go")):
        digest.update(file.read_bytes())
    return user_cache(digest.hexdigest()) / program.name


def _build(program: Program, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f"{place.name}.{os.getpid()}")
    arguments = ["-trimpath", "-ldflags", f"-s -w {program.linking}", "-o", str(unfinished)]
    _go("build", *arguments, program.package, folder=_MODULES / program.module)
    unfinished.rename(place)


def _go(*arguments: str, folder: Path) -> str:
    go = shutil.which("go")
    if go is None:
        raise CannotRunHere("there is no Go compiler; install Go 1.26 or newer")
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(
        [go, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()[-3:]
        raise TestClusterError(f"go {arguments[0]} failed in {folder.name}: {' '.join(words)}")
    return done.stdout
