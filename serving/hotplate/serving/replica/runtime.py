"""Makes a bento a process of this machine: what to start, and all that it needs.

`prepare` has the node make available what replicas share (`node_files`: the bento's files, models
while their weights still arrive, the environment, our own modules) and makes what is the replica's
own (`own_files`: its copy of the bento, its home, its variables and its job; `compile_cache`). All
of these run at the same time, and the first that fails ends the others. The command that comes of
it also says what the process reads, and which standby could become this replica
(`inside.standby`). What a process reports about itself, its phases, modules and methods, is read
from its folder, and is trusted no further than a bento's code may be.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from hotplate.serving.replica.bento import Bento
from hotplate.serving.replica.compile_cache import CompileCache, variables
from hotplate.serving.replica.compile_cache import key as compiled_key
from hotplate.serving.replica.environments.builder import Environment, EnvironmentBuilder
from hotplate.serving.replica.errors import FilesUnavailable
from hotplate.serving.replica.hub_cache import add_hub_model
from hotplate.serving.replica.inherited import certificates, for_replica
from hotplate.serving.replica.inside import journal, methods, modules
from hotplate.serving.replica.memory_folders import memory_folder, remove_memory, sweep_memory
from hotplate.serving.replica.model_folders import AGENT_SOCKET, Models
from hotplate.serving.replica.node_agent import NodeAgent
from hotplate.serving.replica.node_files import NodeFiles
from hotplate.serving.replica.own_files import (
    COMPILED,
    HUB,
    OwnFiles,
    Shared,
    Surroundings,
    processes_of,
)
from hotplate.serving.replica.secret_values import (
    NoSecrets,
    SecretSet,
    SecretSource,
    SecretValue,
    of_build,
    of_replica,
)
from hotplate.serving.replica.variables import (
    COUNTS,
    DEFAULTS,
    THREAD_COUNTS,
    WALLED,
    platform_constants,
    search_paths,
    service_variables,
    temporary_folder,
    thread_counts,
)

log = logging.getLogger(__name__)

METRICS = "metrics"
"""The folder of a standby's metrics until it is a replica."""
STANDBY = "hotplate.serving.replica.inside.standby"
TEMPLATE = "hotplate.serving.replica.inside.template"


ApiAccess = Callable[[Workload, str], Mapping[str, str]]


def no_access(workload: Workload, replica: str) -> Mapping[str, str]:
    """Every replica asks with what its own variables say."""
    return {}


@dataclass(frozen=True)
class _Made:
    """All but the models."""

    bento: Bento
    env: Mapping[str, str]
    secrets: SecretSet
    environment: Environment
    payload: Path


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
        self._secrets = secrets or NoSecrets()
        self._api_access = api_access
        self._compiled = compiled
        self._visible = visible
        self._environments = environments
        self._node = NodeFiles(environments, agent, payload, hubs or Hubs())
        self._trees = trees
        self._prepared: dict[str, Environment] = {}
        """Environments by the directory of the replica that has to report its imports."""

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        """Make everything available and return what to start; weights may still be arriving.
        `directory` is the replica's own, empty. Raises `PrepareFailed`."""
        folder = Path(directory)
        own = OwnFiles(folder)
        try:
            async with asyncio.TaskGroup() as side_by_side:
                own.make()
                models = side_by_side.create_task(self._models(workload, own, recorder))
                made = await self._all_else(workload, own, recorder, side_by_side)
        except ExceptionGroup as failures:
            error = failures.exceptions[0]
            if isinstance(error, OSError) and is_full(error):
                raise FilesUnavailable(full(error, folder), retry=True, no_room=True) from error
            raise error from None
        command = self._command(workload, replica, own, models.result(), made)
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
        await self._node.close()
        await self._environments.close()

    async def _models(self, workload: Workload, own: OwnFiles, recorder: Recorder) -> Models:
        models = await self._node.models(workload, own.folder / AGENT_SOCKET, recorder)
        own.link_models(models.trees)
        return models

    async def _all_else(
        self,
        workload: Workload,
        own: OwnFiles,
        recorder: Recorder,
        side_by_side: asyncio.TaskGroup,
    ) -> _Made:
        """Everything but the models: the bento's files, the service's variables, what of its
        secrets are files, its environment, the payload."""
        recorder.begin("environment")
        payload = side_by_side.create_task(self._node.payload())
        bento = await self._node.bento(workload)
        organization = workload.key.organization
        values = await self._values(workload)
        secrets, building = of_replica(organization, values), of_build(organization, values)
        env = service_variables(workload, bento.envs, secrets.env)
        copying = asyncio.to_thread(own.copy_bento, bento.folder)
        copied = side_by_side.create_task(thread_to_its_end(copying))
        beside = _hub_folder_of(own)
        removing = asyncio.to_thread(shutil.rmtree, beside, ignore_errors=True)
        await thread_to_its_end(removing)
        for model in bento.hub_models:
            side_by_side.create_task(self._add_hub_model(model, own))
        environment = await self._node.environment(workload, bento, building, recorder)
        self._prepared[str(own.folder)] = environment
        side_by_side.create_task(self._give_compiled(workload, environment, own))
        await copied
        made = _Made(bento, env, secrets, environment, await payload)
        recorder.end("environment")
        return made

    async def _values(self, workload: Workload) -> Sequence[SecretValue]:
        if not workload.secrets:
            return ()
        await sweep_memory()
        return await self._secrets.values(workload.key.organization, workload.secrets)

    async def _give_compiled(
        self, workload: Workload, environment: Environment, own: OwnFiles
    ) -> None:
        if self._compiled is not None:
            models = [model.manifest for model in workload.models]
            owner, gpu = workload.owned_by, self._compiled.gpu
            key = compiled_key(owner, models, environment.digest, gpu)
            await self._compiled.take(owner, key, own.compiled)

    async def _add_hub_model(self, model: HubUrl, own: OwnFiles) -> None:
        """Put a hub's model where BentoML looks for it first, so that the hub may be down."""
        files = await self._node.hub_model(model)
        if files is None:
            return
        try:
            beside = _hub_folder_of(own)
            linking = asyncio.to_thread(add_hub_model, own.hub, beside, model, files)
            await thread_to_its_end(linking)
        except (CacheError, OSError) as error:
            log.warning("%s is left to BentoML to download: %s", model, error)

    def _command(
        self, workload: Workload, replica: str, own: OwnFiles, models: Models, made: _Made
    ) -> Command:
        environment, payload = made.environment, made.payload
        walled = self._visible is not None
        host_env = {
            **DEFAULTS,
            **for_replica(os.environ, self._visible),
            **(WALLED if walled else {}),
            **thread_counts(workload.resources.cpus, processes_of(workload)),
        }
        below = {
            **host_env,
            **(variables(own.compiled) if self._compiled is not None else {}),
            **({} if walled else temporary_folder(own.temporary)),
        }
        program = own.program(
            workload,
            replica,
            Shared(
                python=environment.python,
                payload=payload,
                trees=self._trees,
                agent_socket=own.folder / AGENT_SOCKET,
                absent=models.absent,
            ),
            Surroundings(below, made.env, self._files_of(made.secrets, own.folder)),
        )
        beside = _hub_folder_of(own)
        hub_models = [str(beside)] if beside.is_dir() else []
        shared = _reads(environment, payload)
        return Command(
            argv=program.argv,
            env=program.env,
            cwd=program.cwd,
            job=program.job,
            ready_path=program.ready_path,
            reads=(*shared, str(made.bento.folder), *models.reads, *hub_models),
            layers=(str(environment.root),),
            warm=_warm(host_env, environment, payload, walled=walled),
            processes=program.processes,
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


def _hub_folder_of(own: OwnFiles) -> Path:
    """The folder beside a replica's own folder, which it cannot change."""
    return own.folder.with_name(f"{own.folder.name}.{HUB}")


async def _read_beginning(directory: str, name: str, most_bytes: int) -> bytes:
    """The beginning of a file in a replica's folder; empty if it cannot be read."""
    try:
        return await foreign_folder.aside(foreign_folder.read, f"{directory}/{name}", most_bytes)
    except OSError:
        return b""
