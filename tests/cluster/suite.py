"""`make test-kubernetes`: the tests that need a cluster, on one that is there or made for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.cluster import stand_ins
from tests.cluster.errors import CannotRunHere, TestClusterError
from tests.cluster.installation import Installation
from tests.cluster.layout import REPOSITORY
from tests.cluster.machine import lacks
from tests.cluster.release import RELEASE_IS_OURS, Release

_NODES = 2
_FOLDERS = ("tests/cluster", "tests/loadtests/test_cluster_storms.py", "tests/scenarios")
_SIDE_BY_SIDE = ("--dist=loadfile", "--no-loadscope-reorder")
_WAITING, _BUILDING = "-n5", "-n4"
"""How many at a time: of what mostly waits, and of what builds environments."""
_IMAGES = ("HOTPLATE_IMAGE", "HOTPLATE_RUNTIME_IMAGE")


def run(cluster: Installation) -> int:
    """The suite's exit status; 0 with one sentence where there can be no cluster."""
    if given := os.environ.get("KUBECONFIG"):
        if (reason := _cannot_use(cluster, given)) is not None:
            print(reason)
            return 0
        return _pytest(cluster, stays=True) if _is_own(cluster, given) else _without_release()
    if (reason := lacks() or stand_ins.lacks()) is not None:
        print(reason)
        return 0
    was_there = cluster.layout.kubeconfig.exists()
    try:
        for step in cluster.up(_NODES, 0):
            print(step, file=sys.stderr, flush=True)
        return _pytest(cluster, stays=was_there)
    except TestClusterError as error:
        print(error)
        return 0 if isinstance(error, CannotRunHere) else 1
    finally:
        if not was_there:
            cluster.down()


def _cannot_use(cluster: Installation, kubeconfig: str) -> str | None:
    """Why the cluster of a kubeconfig cannot be tested on from here."""
    if _is_own(cluster, kubeconfig):
        return None
    for program in ("kubectl", "helm"):
        if shutil.which(cluster.layout.program(program)) is None:
            return (
                f"The cluster of KUBECONFIG is asked by {program}, which is not here; install it."
            )
    missing = [name for name in _IMAGES if not os.environ.get(name)]
    if missing:
        names = " and ".join(missing)
        return f"The cluster of KUBECONFIG pulls images of this tree: push them and set {names}."
    return None


def _is_own(cluster: Installation, kubeconfig: str) -> bool:
    return kubeconfig == str(cluster.layout.kubeconfig)


def _without_release() -> int:
    """What brings agents of its own or none. First what shares the cluster with others, side by
    side: most of it waits for pods."""
    together = _run("together and not alone and not released", _WAITING, *_SIDE_BY_SIDE)
    return _run("cluster and (alone or not together) and not released") or together


def _pytest(cluster: Installation, stays: bool) -> int:
    """And then what needs the whole release, which is installed once for all, and goes with the
    cluster or, where that stays, before it."""
    tried = [_without_release()]
    release = Release.on(cluster)
    brings = not release.is_there()
    list(release.install())
    try:
        own = {RELEASE_IS_OURS: "1"} if brings else {}
        tried += [
            _run(
                "released and together and not alone or essential",
                _BUILDING,
                *_SIDE_BY_SIDE,
                **own,
            ),
            _run("released and (alone or not together)", **own),
        ]
    finally:
        if brings and stays:
            release.uninstall()
    return next(filter(None, tried), 0)


def _run(marks: str, *flags: str, **variables: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--engine=kubernetes", "-m", marks]
    return subprocess.run(
        [*command, *flags, *_FOLDERS],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        check=False,
    ).returncode
