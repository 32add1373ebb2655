"""The environment variables of a replica and of its environment's build; pure."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
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
"""BentoML's own timeout responds without ending the handler; the gateway has the deadlines."""
SOCKET_FOLDER_BYTES = 70
"""The longest folder in which programs make Unix sockets (107 bytes of path at most) under names
of their own: vLLM's have 37 more."""
WALLED = {"HOME": "/tmp/home", "TMPDIR": "/tmp"}
"""For isolated replicas and standbys, where /tmp is their own: these folders are removed with them,
and are the same for all, because a standby may have read its home before it becomes a replica."""
DEFAULTS = {"BENTOML_DO_NOT_TRACK": "True", "PYTHONUNBUFFERED": "1"}
"""For every replica and standby; a deployment's own values take precedence."""
COUNTS = "prometheus_multiproc_dir"
"""The folder for metrics in a replica's home."""
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

NONE: Mapping[str, str] = {}

Declared = Iterable[Mapping[str, Any]]
"""Variables as `bento.yaml` declares them: `name`, `value` (may be empty), `stage`."""


def service_variables(
    workload: Workload, declared: Declared, secret: Mapping[str, str] = NONE
) -> dict[str, str]:
    """The author's defaults, overridden by the values of secrets and these by the deployment's,
    without reserved names. Raises `BentoUnusable` if the entry service declares a variable without
    a value."""
    values = {item["name"]: item.get("value") for item in declared if item.get("stage") != "build"}
    given = {**secret, **workload.env}
    values |= given
    missing = [name for name, value in values.items() if value in (None, "")]
    missing = [name for name in missing if name not in given]
    if missing and workload.entry:
        raise BentoUnusable(
            f"The service {workload.key.service} needs a value for {', '.join(sorted(missing))}; "
            "set it in the deployment's envs, or in a secret of it."
        )
    return {
        name: str(value)
        for name, value in values.items()
        if name not in missing and not is_reserved(name)
    }


def build_variables(
    workload: Workload, declared: Declared, secret: Collection[str] = ()
) -> dict[str, str]:
    """The variables of the environment's build, which are part of its digest: the author's values
    for the stages `build` and `all`, but for those of which a `secret` has another. A deployment's
    value counts only if it is for the build, because otherwise each deployment of a bento would
    need an environment."""
    values: dict[str, str] = {}
    for item in declared:
        name, stage = item["name"], item.get("stage") or "all"
        given = workload.env.get(name)
        if given and (stage == "build" or name.startswith(INSTALLER_PREFIXES)):
            values[name] = given
        elif item.get("value") and stage != "runtime" and name not in secret:
            values[name] = str(item["value"])
    return values


def cloud_variables(deployment: str, namespace: str, url: str) -> dict[str, str]:
    """The variables by which BentoCloud describes a replica's deployment."""
    variables = {DEPLOYMENT_URL: url}
    for prefix in DEPLOYMENT_PREFIXES:
        variables |= {f"{prefix}NAME": deployment, f"{prefix}NAMESPACE": namespace}
    return variables


def platform_variables(workload: Workload, home: Path, python: Path) -> dict[str, str]:
    """What BentoML's worker needs on the platform."""
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
    """Those of them that are the same for all replicas of an environment."""
    return {
        "BENTOML_CONTAINERIZED": "true",
        "VIRTUAL_ENV": str(python.parent.parent),
    }


def thread_counts(cpus: float, workers: int) -> dict[str, str]:
    """Threads of the numeric libraries per process: its share of the requested CPUs, if any. Their
    own default is a thread per core of the machine, however few are ours."""
    return dict.fromkeys(THREAD_COUNTS, str(max(1, int(cpus / workers)))) if cpus else {}


def temporary_folder(folder: Path) -> dict[str, str]:
    """The folder for temporary files, which is removed with the replica. If its path is too long
    for sockets, they stay in the system's."""
    path = str(folder)
    return {"TMPDIR": path} if len(os.fsencode(path)) <= SOCKET_FOLDER_BYTES else {}


def search_paths(env: Mapping[str, str], python: Path, payload: Path) -> dict[str, str]:
    """`PATH` with the environment's programs first, `PYTHONPATH` with our payload first."""
    paths = {"PATH": str(python.parent), "PYTHONPATH": str(payload)}
    return {
        name: os.pathsep.join(filter(None, (first, env.get(name)))) for name, first in paths.items()
    }


def _config_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The deployment's overrides, except that the gateway alone decides on time limits, on
    concurrency, and on whether other services are ready (`readiness.py`)."""
    traffic = {**(overrides.get("traffic") or {}), "timeout": NO_TIMEOUT_S, "max_concurrency": None}
    return {**overrides, "traffic": traffic, "runner_probe": {"enabled": False}}
