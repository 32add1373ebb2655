"""What one replica has for itself: its copy of the bento, its home, its variables, and its job.

All of it is made in the replica's own folder, from what its node has made available to read
(`node_files`). Nothing here asks an agent or another machine, so it can be done by whoever starts
the process: beside the agent, or in a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotplate.deploy.workload import Model, Workload
from hotplate.serving.replica.inside import journal, modules
from hotplate.serving.replica.inside.own_folder import add_model, copy_bento
from hotplate.serving.replica.inside.patches.readiness import ITSELF
from hotplate.serving.replica.inside.reserved import REPLICA_UID, is_reserved, not_used
from hotplate.serving.replica.ready_path import ready_path
from hotplate.serving.replica.slots import workers
from hotplate.serving.replica.variables import COUNTS, platform_variables, search_paths

TEMPORARY = "tmp"
"""The folder for temporary files in a replica's own folder."""
HUB = "hub"
"""The folder of a replica's Hugging Face cache; and the suffix of a folder beside the replica's,
with the files of that cache, which it can only read."""
COMPILED = "compiled"
"""The folder for what torch and Triton compile."""
WORKER = "hotplate.serving.replica.inside.worker"


@dataclass(frozen=True)
class Shared:
    """Where a replica finds what its node has made available; it only reads there."""

    python: Path
    """The program of its environment."""
    payload: Path
    """Our own modules."""
    trees: Path
    """The folder with the files of models."""
    agent_socket: Path
    """Its own door to the node's agent."""
    absent: Sequence[str] = ()
    """Files of models that do not exist before they have arrived."""


@dataclass(frozen=True)
class Program:
    """What to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    job: Mapping[str, Any]
    """What it reads from its standard input."""
    ready_path: str
    processes: int
    """How many serve."""


@dataclass(frozen=True)
class Surroundings:
    """Variables of a replica that are not its deployment's word."""

    below: Mapping[str, str] = field(default_factory=dict)
    """Those that its deployment's go over: of the machine, of its folders."""
    service: Mapping[str, str] = field(default_factory=dict)
    """Its author's, its deployment's and its secrets', as `service_variables` has laid them."""
    secret_files: Mapping[str, Any] = field(default_factory=dict)
    """What its process makes of secrets that are files; empty = nothing."""


def processes_of(workload: Workload) -> int:
    """How many processes serve in one of its replicas."""
    return workers(_config(workload), workload.resources.cpus)


def _config(workload: Workload) -> dict[str, Any]:
    return {**workload.config, **workload.config_overrides}


class OwnFiles:
    """The folder of one replica, which is empty at first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bento, self.home = folder / "bento", folder / "home"
        self.hub, self.compiled = folder / HUB, folder / COMPILED
        self.temporary = folder / TEMPORARY

    def make(self) -> None:
        """Make the folders that every replica has. Raises OSError."""
        (self.home / COUNTS).mkdir(parents=True)
        self.temporary.mkdir()

    def copy_bento(self, tree: Path) -> None:
        """Have a copy that is its own to write. Raises OSError."""
        copy_bento(tree, self.bento)

    def link_models(self, models: Iterable[tuple[Model, str]]) -> None:
        """Have a model store with these, whose files lie there. Raises OSError."""
        for model, root in models:
            add_model(self.home, model.name, model.version, Path(root))

    def program(
        self, workload: Workload, replica: str, shared: Shared, around: Surroundings
    ) -> Program:
        """What to start once everything is there; `replica` is its id."""
        processes = processes_of(workload)
        return Program(
            argv=(str(shared.python), "-m", WORKER),
            env=self._variables(workload, replica, shared, around),
            cwd=str(self.bento),
            job=self._job(workload, processes, shared.absent, around.secret_files),
            ready_path=f"{ready_path(_config(workload))}?{ITSELF}",
            processes=processes,
        )

    def _variables(
        self, workload: Workload, replica: str, shared: Shared, around: Surroundings
    ) -> dict[str, str]:
        env = {
            **around.below,
            **around.service,
            **platform_variables(workload, self.home, shared.python),
            REPLICA_UID: replica,
            "HOTPLATE_AGENT_SOCKET": str(shared.agent_socket),
            "HOTPLATE_TREES": str(shared.trees),
            "HOTPLATE_MODELS": str(self.home / "models"),
        }
        if self.hub.is_dir():
            env.setdefault("BENTOML_HF_CACHE_DIR", str(self.hub))
        return env | search_paths(env, shared.python, shared.payload)

    def _job(
        self,
        workload: Workload,
        processes: int,
        absent: Sequence[str],
        secret_files: Mapping[str, Any],
    ) -> dict[str, Any]:
        unused = sorted(name for name in workload.env if is_reserved(name))
        return {
            "bento": str(self.bento),
            "service": workload.key.service,
            "entry": workload.entry,
            "depends": dict(workload.depends),
            "overrides": dict(workload.config_overrides),
            "workers": processes,
            "journal": str(self.folder / journal.FILE_NAME),
            "modules": str(self.folder / modules.FILE_NAME),
            "stop_grace_s": workload.stop_grace_s,
            "absent": list(absent),
            "notes": list(map(not_used, unused)),
            **({"secrets": dict(secret_files)} if secret_files else {}),
        }
