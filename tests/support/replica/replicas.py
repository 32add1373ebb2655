"""What surrounds a replica in production, in memory: an agent, a recorder, an engine's start."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml

from hotplate.cache.client import TreeInfo
from hotplate.cache.errors import CacheError
from hotplate.cache.origins.hubs import Hubs
from hotplate.deploy.local.runtime import Command
from hotplate.deploy.sandbox.builds import Builds
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.workload import Model, Resources, Workload, WorkloadKey
from hotplate.machine.unix_address import listen
from hotplate.serving.replica.compile_cache import CompileCache
from hotplate.serving.replica.environments.builder import EnvironmentBuilder
from hotplate.serving.replica.environments.spec import read_spec
from hotplate.serving.replica.runtime import ApiAccess, BentoRuntime, no_access
from hotplate.serving.replica.secret_values import SecretSource, SecretValue
from tests.support.packages import PACKAGES
from tests.support.patience import PATIENCE_S
from tests.support.replica.forks import Fork


def tree(root: Path) -> TreeInfo:
    """A whole one of no bytes."""
    return TreeInfo(str(root), bytes_total=0, bytes_verified=0, complete=True, view="", absent=())


class Agent:
    """Manifests are names of folders. Those in `arriving` are whole once `arrived` is set."""

    def __init__(self, folders: Mapping[str, Path], arriving: frozenset[str] = frozenset()) -> None:
        self.folders = folders
        self.arriving = arriving
        self.arrived = asyncio.Event()
        self.view = ""
        self.absent: tuple[str, ...] = ()
        self.error: Exception | None = None
        self.admitted: dict[str, set[str]] = {}
        self.hub: Mapping[str, str] | None = None
        self.pulled: list[str] = []

    async def tree(self, manifest: str, wait: Literal["view", "files", "all"]) -> TreeInfo:
        if self.error is not None:
            raise self.error
        complete = manifest not in self.arriving or self.arrived.is_set()
        if not complete and wait == "all":
            await self.arrived.wait()
        if complete:
            return tree(self.folders[manifest])
        return replace(
            tree(self.folders[manifest]), complete=False, view=self.view, absent=self.absent
        )

    async def admit(self, path: str, manifests: Iterable[str]) -> None:
        self.admitted[path] = set(manifests)

    async def pull_to_disk(self, url: str) -> Mapping[str, str]:
        self.pulled.append(url)
        if self.hub is None:
            raise CacheError("the hub does not answer")
        return self.hub


class SecretsOf(SecretSource):
    """Those of the organization `acme`, by their names."""

    def __init__(self, **values: SecretValue) -> None:
        self.known = values

    async def values(self, organization: str, names: Sequence[str]) -> list[SecretValue]:
        return [self.known[name] for name in names if organization == "acme"]


class Phases:
    """A recorder that keeps what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.news = asyncio.Event()

    def begin(self, phase: str) -> None:
        self._tell(f"begin {phase}")

    def end(self, phase: str) -> None:
        self._tell(f"end {phase}")

    def building(self, log: str) -> None:
        self._tell(f"building {log}")

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self.news.set()


def workload(
    service: str = "Echo",
    *,
    env: Mapping[str, str] | None = None,
    cpus: float = 0.0,
    **given: Any,
) -> Workload:
    """One of a service of `acme`'s; its bento's manifest is `bento`."""
    return Workload(
        WorkloadKey("acme", "served", 1, service),
        bento_name="served",
        bento_version="v1",
        bento_manifest="bento",
        env=env or {},
        resources=Resources(cpus=cpus),
        stop_grace_s=10.0,
        **given,
    )


def model(name: str, version: str, manifest: str) -> Model:
    return Model(name, version, manifest)


def environments_in(
    folder: Path, isolation: Isolation | None = None, **settings: Any
) -> EnvironmentBuilder:
    """Those below `folder`, built without walls unless there are some, by a user who may make no
    control groups."""
    root = folder / "environments"
    memory_bytes = settings.pop("memory_bytes", 4 << 30)
    cgroups = Cgroups(root, memory_bytes, root=folder / "no-such-system")
    builds = Builds(isolation or Isolation(), cgroups, memory_bytes)
    packages = settings.pop("packages", PACKAGES)
    return EnvironmentBuilder(root, builds, packages, **settings)


def runtime_of(
    folder: Path,
    agent: Agent,
    compiled: CompileCache | None = None,
    hubs: Sequence[str] = (),
    shown: Sequence[Path] | None = None,
    secrets: SecretSource | None = None,
    api_access: ApiAccess = no_access,
) -> BentoRuntime:
    return BentoRuntime(
        environments_in(folder),
        agent,
        trees=folder,
        payload=folder / "parts",
        compiled=compiled,
        hubs=Hubs(tuple(hubs)),
        visible=shown,
        secrets=secrets,
        api_access=api_access,
    )


def lend_own_environment(folder: Path, bento: Path) -> None:
    """Make the tests' own virtual environment the one that this bento gets."""
    image = yaml.safe_load((bento / "bento.yaml").read_text())["image"]
    kept = environments_in(folder).folder("acme", read_spec(bento, image, {}).digest)
    if not kept.path.exists():
        (kept.path / "tests").mkdir(parents=True)
        (kept.path / "tests" / "venv").symlink_to(sys.prefix, target_is_directory=True)
        kept.note_ready("tests", Path(sys.executable).resolve())


class Replica:
    """A process started as an engine starts it."""

    def __init__(
        self,
        command: Command,
        directory: Path,
        through: Sequence[str] = (),
        at: Path | None = None,
        warm: bool = False,
    ) -> None:
        """It listens on a port of loopback, or on the Unix socket `at`, as an engine's do."""
        self.log = directory / "log"
        self.uid = command.env["HOTPLATE_REPLICA_UID"]
        self.process: subprocess.Popen[bytes] | Fork
        with (
            self.log.open("wb") as log,
            socket.create_server(("127.0.0.1", 0)) if at is None else listen(at, 128) as listener,
            os.fdopen(os.memfd_create("job"), "wb") as job,
        ):
            self.url = "http://{}:{}".format(*listener.getsockname()) if at is None else ""
            job.write(json.dumps(command.job).encode())
            job.seek(0)
            env = {
                **command.env,
                "HOTPLATE_LISTEN_FD": str(listener.fileno()),
                "HOTPLATE_REPLICA_DIR": str(directory),
                "CUDA_VISIBLE_DEVICES": "",
            }
            if warm:
                given = [job.fileno(), log.fileno(), listener.fileno()]
                self.process = Fork(command.argv, env, command.cwd, given)
                return
            self.process = subprocess.Popen(
                [*through, *command.argv],
                env=env,
                cwd=command.cwd,
                stdin=job,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def call(self, route: str, **body: Any) -> Any:
        """The answer to `POST route`; raises urllib's errors."""
        return json.loads(self.get(f"/{route}", json.dumps(body).encode()))

    def get(self, path: str, data: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            body: bytes = answer.read()
            return body

    def ended(self) -> int:
        """Its exit status, once it has ended by itself."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def started(
    folder: Path,
    bento: Path,
    served: Workload,
    through: Sequence[str] = (),
    at: Path | None = None,
    warm: bool = False,
    secrets: SecretSource | None = None,
    **trees: Path,
) -> Iterator[Replica]:
    """A replica of a service in the tests' own environment, killed at the end.

    `through` is a command that becomes its own last arguments; `at` is a Unix socket to listen on.
    One that is `warm` has imported BentoML already, as those that were standbys have.
    """
    lend_own_environment(folder, bento)
    directory = folder / f"replica-{served.key.service}-{len(list(folder.glob('replica-*')))}"
    directory.mkdir()

    async def prepare() -> Command:
        runtime = runtime_of(folder, Agent({"bento": bento, **trees}), secrets=secrets)
        return await runtime.prepare(served, directory.name, str(directory), Phases())

    replica = Replica(asyncio.run(prepare()), directory, through, at, warm)
    try:
        yield replica
    finally:
        with suppress(ProcessLookupError):  # its service's command may outlive it
            os.killpg(replica.process.pid, 9)
        replica.process.wait()
