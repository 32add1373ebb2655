"""Makes a bento a process: environment, files and weights side by side, then what to start.

`prepare` brings the bento's files (`bento`), links its models while their weights still arrive
(`model_folders`), has its environment built or found (`environments`), makes the replica's own
copies (`home`, `compile_cache`) and adds our own files (`payload`). All of these run at the same
time, and the first that fails ends the others. The resulting command names the program
(`inside.worker`), its variables (`variables`) and its job, and the standby that could become this
replica (`inside.standby`). What a process reports about itself, its phases, modules and methods, is
read from its folder, and is trusted no further than a bento's code may be.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotplate.cache.errors import CacheError
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.hubs import Hubs
from hotplate.deploy.local.runtime import Command, Runtime, Warm
from hotplate.deploy.phases import Phase, Recorder
from hotplate.deploy.workload import Workload
from hotplate.machine import foreign_folder
from hotplate.machine.background import thread_to_its_end
from hotplate.machine.free_space import full, is_full
from hotplate.serving.replica.bento import read_bento
from hotplate.serving.replica.compile_cache import CompileCache, variables
from hotplate.serving.replica.compile_cache import key as compiled_key
from hotplate.serving.replica.environments.builder import Environment, EnvironmentBuilder
from hotplate.serving.replica.errors import FilesUnavailable
from hotplate.serving.replica.home import add_hub_model, copy_bento
from hotplate.serving.replica.inherited import certificates, for_replica
from hotplate.serving.replica.inside import journal, methods, modules
from hotplate.serving.replica.inside.patches.readiness import ITSELF
from hotplate.serving.replica.inside.reserved import REPLICA_UID, is_reserved, not_used
from hotplate.serving.replica.memory_folders import memory_folder, remove_memory, sweep_memory
from hotplate.serving.replica.model_folders import (
    AGENT_SOCKET,
    ModelFolders,
    Models,
    bring_tree,
)
from hotplate.serving.replica.node_agent import NodeAgent
from hotplate.serving.replica.payload import make_payload
from hotplate.serving.replica.ready_path import ready_path
from hotplate.serving.replica.secret_values import (
    NoSecrets,
    SecretSet,
    SecretSource,
    SecretValue,
    of_build,
    of_replica,
)
from hotplate.serving.replica.slots import workers
from hotplate.serving.replica.variables import (
    COUNTS,
    DEFAULTS,
    THREAD_COUNTS,
    WALLED,
    build_variables,
    platform_constants,
    platform_variables,
    search_paths,
    service_variables,
    temporary_folder,
    thread_counts,
)

log = logging.getLogger(__name__)

TEMPORARY = "tmp"
"""The folder for temporary files in a replica's own folder."""
METRICS = "metrics"
"""The folder of a standby's metrics until it is a replica."""
HUB = "hub"
"""The folder of a replica's Hugging Face cache; and the suffix of a folder beside the replica's,
with the files of that cache, which it can only read."""
COMPILED = "compiled"
"""The folder for what torch and Triton compile."""
WORKER = "hotplate.serving.replica.inside.worker"
STANDBY = "hotplate.serving.replica.inside.standby"
TEMPLATE = "hotplate.serving.replica.inside.template"


ApiAccess = Callable[[Workload, str], Mapping[str, str]]


def no_access(workload: Workload, replica: str) -> Mapping[str, str]:
    """Every replica asks with what its own variables say."""
    return {}


class BentoRuntime(Runtime):
    """Replicas of bentos on this node. `trees` is the folder of the node's agent; `payload` is a
    folder for our own files that replicas import."""

    def __init__(
        self,
        environments: EnvironmentBuilder,
        agent: NodeAgent,
        *,
        trees: Path,
        payload: Path,
        compiled: CompileCache | None = None,
        visible: Sequence[Path] | None = None,
        hubs: Hubs | None = None,
        secrets: SecretSource | None = None,
        api_access: ApiAccess = no_access,
    ) -> None:
        """Without `compiled`, a replica's compiled code is not shared; without `hubs`, bentos may
        name the known hub only; without `secrets`, workloads get none. `visible` are the folders of
        this machine's users that replicas see; None = all of them, as there is no isolation.
        `api_access` gives a replica, by its workload and id, the variables with which it asks
        BentoCloud's API for deployments that it calls by name."""
        self._hubs = hubs or Hubs()
        self._secrets = secrets or NoSecrets()
        self._api_access = api_access
        self._compiled = compiled
        self._visible = visible
        self._environments = environments
        self._agent = agent
        self._trees = trees
        self._payload_root = payload
        self._prepared: dict[str, Environment] = {}
        """Environments by the directory of the replica that has to report its imports."""
        self._model_folders = ModelFolders(agent)

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        """Make everything available and return what to start; weights may still be arriving.
        `directory` is the replica's own, empty. Raises `PrepareFailed`."""
        folder = Path(directory)
        try:
            async with asyncio.TaskGroup() as side_by_side:
                _make_folders(folder)
                linking = self._model_folders.link(workload, folder / "home", recorder)
                linked = side_by_side.create_task(linking)
                made = await self._environment(workload, folder, recorder, side_by_side)
        except ExceptionGroup as failures:
            error = failures.exceptions[0]
            if isinstance(error, OSError) and is_full(error):
                raise FilesUnavailable(full(error, folder), retry=True, no_room=True) from error
            raise error from None
        command = self._command(workload, replica, folder, linked.result(), *made)
        access = self._api_access(workload, replica)
        if access.keys() & command.env.keys():
            return command  # whoever names another API, or a key of their own, means that
        return replace(command, env={**command.env, **access})

    async def phases(self, directory: str) -> Sequence[Phase]:
        """The phases that the process has recorded in its directory so far."""
        content = await _read_beginning(directory, journal.FILE_NAME, journal.MOST_BYTES)
        return [Phase(each.name, each.start, each.end) for each in journal.phases_in(content)]

    async def self_report(self, directory: str) -> Mapping[str, Any] | None:
        """What the process in that directory has reported about its service's methods; None if
        nothing. Its list of imports is kept for the standbys of its environment."""
        if environment := self._prepared.pop(directory, None):
            content = await _read_beginning(directory, modules.FILE_NAME, modules.MOST_BYTES)
            await self._environments.note_modules(environment, modules.noted_in(content))
        return methods.noted_in(
            await _read_beginning(directory, methods.FILE_NAME, methods.MOST_BYTES)
        )

    async def keep(self, directory: str, *, ended: bool) -> None:
        """Keep what the process in that directory has compiled, for the next ones."""
        if ended:
            self._prepared.pop(directory, None)
            await remove_memory(Path(directory))
        if self._compiled is not None:
            await self._compiled.keep(Path(directory) / COMPILED, ended=ended)

    async def close(self) -> None:
        """Stop building and watching; replicas go on running."""
        await self._model_folders.close()
        await self._environments.close()

    async def _environment(
        self,
        workload: Workload,
        folder: Path,
        recorder: Recorder,
        side_by_side: asyncio.TaskGroup,
    ) -> tuple[str, Mapping[str, str], SecretSet, Environment, Path]:
        """Everything but the models: the bento's files, the service's variables, what of its
        secrets are files, its environment, the payload."""
        recorder.begin("environment")
        payload = side_by_side.create_task(asyncio.to_thread(make_payload, self._payload_root))
        tree = await bring_tree(self._agent, workload.bento_manifest, wait="all")
        bento = await asyncio.to_thread(read_bento, Path(tree.root), self._hubs)
        organization = workload.key.organization
        values = await self._values(workload)
        secrets, building = of_replica(organization, values), of_build(organization, values)
        env = service_variables(workload, bento.envs, secrets.env)
        copying = asyncio.to_thread(copy_bento, bento.folder, folder / "bento")
        copied = side_by_side.create_task(thread_to_its_end(copying))
        removing = asyncio.to_thread(shutil.rmtree, _hub_folder_of(folder), ignore_errors=True)
        await thread_to_its_end(removing)
        for model in bento.hub_models:
            side_by_side.create_task(self._add_hub_model(model, folder))
        environment = await self._environments.ensure(
            workload.owned_by,
            bento.folder,
            bento.image,
            build_variables(workload, bento.envs, building.env),
            recorder.building,
            building,
        )
        self._prepared[str(folder)] = environment
        side_by_side.create_task(self._give_compiled(workload, environment, folder))
        await copied
        made = tree.root, env, secrets, environment, await payload
        recorder.end("environment")
        return made

    async def _values(self, workload: Workload) -> Sequence[SecretValue]:
        if not workload.secrets:
            return ()
        await sweep_memory()
        return await self._secrets.values(workload.key.organization, workload.secrets)

    async def _give_compiled(
        self, workload: Workload, environment: Environment, folder: Path
    ) -> None:
        if self._compiled is not None:
            models = [model.manifest for model in workload.models]
            owner, gpu = workload.owned_by, self._compiled.gpu
            key = compiled_key(owner, models, environment.digest, gpu)
            await self._compiled.take(owner, key, folder / COMPILED)

    async def _add_hub_model(self, model: HubUrl, folder: Path) -> None:
        """Put a hub's model where BentoML looks for it first, so that the hub may be down. If that
        fails, BentoML downloads the model itself, with the deployment's own token."""
        try:
            files = await self._agent.pull_to_disk(str(model))
            linking = asyncio.to_thread(
                add_hub_model, folder / HUB, _hub_folder_of(folder), model, files
            )
            await thread_to_its_end(linking)
        except (CacheError, OSError) as error:
            log.warning("%s is left to BentoML to download: %s", model, error)

    def _command(
        self,
        workload: Workload,
        replica: str,
        folder: Path,
        models: Models,
        bento: str,
        service_env: Mapping[str, str],
        secrets: SecretSet,
        environment: Environment,
        payload: Path,
    ) -> Command:
        config = {**workload.config, **workload.config_overrides}
        processes = workers(config, workload.resources.cpus)
        home, python = folder / "home", environment.python
        hub_models = [str(_hub_folder_of(folder))] if _hub_folder_of(folder).is_dir() else []
        host_env = {
            **DEFAULTS,
            **for_replica(os.environ, self._visible),
            **(WALLED if self._visible is not None else {}),
            **thread_counts(workload.resources.cpus, processes),
        }
        env = {
            **host_env,
            **(variables(folder / COMPILED) if self._compiled is not None else {}),
            **(temporary_folder(folder / TEMPORARY) if self._visible is None else {}),
            **service_env,
            **platform_variables(workload, home, python),
            REPLICA_UID: replica,
            "HOTPLATE_AGENT_SOCKET": str(folder / AGENT_SOCKET),
            "HOTPLATE_TREES": str(self._trees),
            "HOTPLATE_MODELS": str(home / "models"),
        }
        if (folder / HUB).is_dir():
            env.setdefault("BENTOML_HF_CACHE_DIR", str(folder / HUB))
        env |= search_paths(env, python, payload)
        unused = sorted(name for name in workload.env if is_reserved(name))
        files = self._files_of(secrets, folder)
        return Command(
            argv=(str(python), "-m", WORKER),
            env=env,
            cwd=str(folder / "bento"),
            job={
                "bento": str(folder / "bento"),
                "service": workload.key.service,
                "entry": workload.entry,
                "depends": dict(workload.depends),
                "overrides": dict(workload.config_overrides),
                "workers": processes,
                "journal": str(folder / journal.FILE_NAME),
                "modules": str(folder / modules.FILE_NAME),
                "stop_grace_s": workload.stop_grace_s,
                "absent": list(models.absent),
                "notes": list(map(not_used, unused)),
                **({"secrets": files} if files else {}),
            },
            ready_path=f"{ready_path(config)}?{ITSELF}",
            reads=(*_reads(environment, payload), bento, *models.reads, *hub_models),
            layers=(str(environment.root),),
            warm=_warm(host_env, environment, payload, walled=self._visible is not None),
            processes=processes,
        )

    def _files_of(self, secrets: SecretSet, folder: Path) -> dict[str, Any]:
        """What the process makes of them; nothing where there are none."""
        if not secrets.files:
            return {}
        memory = memory_folder(folder, walled=self._visible is not None)
        return {"folder": str(memory), "of": str(folder), "files": dict(secrets.files)}


def _reads(environment: Environment, payload: Path) -> tuple[str, ...]:
    """What every replica of an environment reads besides it."""
    prefix = environment.interpreter.parent.parent
    return tuple(map(str, (payload, prefix, *filter(Path.exists, certificates(os.environ)))))


def _warm(
    host_env: Mapping[str, str], environment: Environment, payload: Path, *, walled: bool
) -> Warm:
    env = {**host_env, **platform_constants(environment.python)}
    env |= search_paths(env, environment.python, payload)
    threads = env.get(THREAD_COUNTS[0])
    return Warm(
        environment=environment.digest,
        organization=environment.owner,
        argv=(str(environment.python), "-m", STANDBY),
        env=env,
        job={
            "modules": str(environment.modules),
            "metrics": METRICS,
            "temporary": WALLED["TMPDIR"] if walled else "",
        },
        variant=f"{threads} threads" if threads else "",
        reads=(*_reads(environment, payload), str(environment.modules)),
        layers=(str(environment.root),),
        takes_along={METRICS: f"home/{COUNTS}"},
        template=(str(environment.python), "-m", TEMPLATE),
    )


def _hub_folder_of(folder: Path) -> Path:
    """The folder beside a replica's own folder, which it cannot change."""
    return folder.with_name(f"{folder.name}.{HUB}")


def _make_folders(folder: Path) -> None:
    (folder / "home" / COUNTS).mkdir(parents=True)
    (folder / TEMPORARY).mkdir()


async def _read_beginning(directory: str, name: str, most_bytes: int) -> bytes:
    """The beginning of a file in a replica's folder; empty if it cannot be read."""
    try:
        return await foreign_folder.aside(foreign_folder.read, f"{directory}/{name}", most_bytes)
    except OSError:
        return b""
