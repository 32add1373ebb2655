"""The environment variables of a replica and of its environment's build; pure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hotplate.deploy.workload import Workload
from hotplate.serving.replica.errors import BentoUnusable
from hotplate.serving.replica.inherited import INSTALLER_PREFIXES
from hotplate.serving.replica.inside.reserved import (
    DEPLOYMENT_PREFIXES,
    DEPLOYMENT_URL,
    is_reserved,
)

NO_TIMEOUT_S = 86400
"""BentoML's own timeout answers without ending the handler; the gateway keeps the deadlines."""
SOCKET_FOLDER_BYTES = 70
"""The longest folder in which programs make Unix sockets (107 bytes of path at most) under names
of their own: vLLM's have 37 more."""
WALLED = {"HOME": "/tmp/home", "TMPDIR": "/tmp"}
"""Of replicas and standbys within walls, where /tmp is their own: places that go with them, and the
same for all, as a standby may have asked for its home before it becomes a replica."""
DEFAULTS = {"BENTOML_DO_NOT_TRACK": "True", "PYTHONUNBUFFERED": "1"}
"""For every replica and standby; a deployment's own values go before these."""
COUNTS = "prometheus_multiproc_dir"
"""The folder of a replica's home in which its processes count."""
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Declared = Iterable[Mapping[str, Any]]
"""Variables as `bento.yaml` declares them: `name`, `value` (may be empty), `stage`."""


def service_variables(workload: Workload, declared: Declared) -> dict[str, str]:
    """The author's defaults under what the deployment says, without reserved names.

    Raises `BentoUnusable` if the entry service declares a variable that nobody gives a value.
    """
    values = {item["name"]: item.get("value") for item in declared if item.get("stage") != "build"}
    values |= workload.env
    missing = [name for name, value in values.items() if value in (None, "")]
    missing = [name for name in missing if name not in workload.env]
    if missing and workload.entry:
        raise BentoUnusable(
            f"The service {workload.key.service} needs a value for {', '.join(sorted(missing))}; "
            "set it in the deployment's envs."
        )
    return {
        name: str(value)
        for name, value in values.items()
        if name not in missing and not is_reserved(name)
    }


def build_variables(workload: Workload, declared: Declared) -> dict[str, str]:
    """What is set while the environment is built, and thus makes it a different one.

    The author's values for the stages `build` and `all`. A deployment's value counts only where
    it is meant for the build, else each deployment of a bento would need an environment.
    """
    values: dict[str, str] = {}
    for item in declared:
        name, stage = item["name"], item.get("stage") or "all"
        given = workload.env.get(name)
        if given and (stage == "build" or name.startswith(INSTALLER_PREFIXES)):
            values[name] = given
        elif item.get("value") and stage != "runtime":
            values[name] = str(item["value"])
    return values


def cloud_variables(deployment: str, namespace: str, url: str) -> dict[str, str]:
    """What BentoCloud tells a replica of its deployment."""
    told = {DEPLOYMENT_URL: url}
    for prefix in DEPLOYMENT_PREFIXES:
        told |= {f"{prefix}NAME": deployment, f"{prefix}NAMESPACE": namespace}
    return told


def platform_variables(workload: Workload, home: Path, python: Path) -> dict[str, str]:
    """What BentoML's worker needs to live in the platform."""
    return {
        **workload.cloud,
        **platform_constants(python),
        "BENTOML_HOME": str(home),
        "BENTOML_CONFIG_OVERRIDES": json.dumps(
            {"services": {workload.key.service: _config_overrides(workload.config_overrides)}}
        ),
        "PROMETHEUS_MULTIPROC_DIR": str(home / COUNTS),
    }


def platform_constants(python: Path) -> dict[str, str]:
    """Of those, what is the same for all replicas of an environment."""
    return {
        "BENTOML_CONTAINERIZED": "true",
        "VIRTUAL_ENV": str(python.parent.parent),
    }


def thread_counts(cpus: float, workers: int) -> dict[str, str]:
    """Threads of the numeric libraries per process: its share of the CPUs asked for, if any.

    Their own default is a thread per core of the machine, however little of it is ours.
    """
    return dict.fromkeys(THREAD_COUNTS, str(max(1, int(cpus / workers)))) if cpus else {}


def temporary_folder(folder: Path) -> dict[str, str]:
    """A place for temporary files that goes with the replica, whatever its programs leave there.

    Where its path is too long for sockets, they stay in the system's.
    """
    path = str(folder)
    return {"TMPDIR": path} if len(os.fsencode(path)) <= SOCKET_FOLDER_BYTES else {}


def search_paths(env: Mapping[str, str], python: Path, parts: Path) -> dict[str, str]:
    """`PATH` with the environment's programs first, `PYTHONPATH` with our parts first."""
    paths = {"PATH": str(python.parent), "PYTHONPATH": str(parts)}
    return {
        name: os.pathsep.join(filter(None, (first, env.get(name)))) for name, first in paths.items()
    }


def _config_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The deployment's, but the gateway alone decides on time, on how many at once, and on whether
    other services are ready (`readiness.py`)."""
    traffic = {**(overrides.get("traffic") or {}), "timeout": NO_TIMEOUT_S, "max_concurrency": None}
    return {**overrides, "traffic": traffic, "runner_probe": {"enabled": False}}
