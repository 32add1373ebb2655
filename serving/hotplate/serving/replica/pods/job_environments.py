"""The environments of pods: known from the blob store's notes, and otherwise built by Jobs.

Of each environment there is one task at a time, which looks for its note and, where there is none,
has it built. Whoever asks meanwhile is told that it is being prepared, and asks again when
something has changed. A failure is told to those revisions that have waited for the build; one that
asks later has another try, because somebody may have mended what was wrong.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.ticket import Ticket, Use, signed
from hotplate.deploy.cluster.builds.spec import (
    ACCOUNT,
    BuildEnd,
    BuildJobs,
    BuildOutcome,
    JobBuild,
    namespace_of,
)
from hotplate.deploy.errors import BeingPrepared
from hotplate.deploy.workload import Workload
from hotplate.machine.background import BackgroundTasks
from hotplate.serving.replica.bento import Bento
from hotplate.serving.replica.environments import bytecode
from hotplate.serving.replica.environments.folder import SHARED, organization_folder
from hotplate.serving.replica.environments.spec import EnvironmentSpec, read_spec
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.pods.environments import Environments, PodEnvironment
from hotplate.serving.replica.pods.instructions import CONTAINER_ENV, command, instructions
from hotplate.serving.replica.pods.notes import (
    EnvironmentNotes,
    NotedEnvironment,
    about,
    digest_of,
    name_of,
)
from hotplate.serving.replica.pods.runtimes import RuntimeImage, runtimes_of
from hotplate.serving.replica.secret_values import SecretSet
from hotplate.serving.replica.variables import build_variables

LOOKED_FOR = "its Python environment is looked for"
BUILDING = "its Python environment is being built"
PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""After a failure that another try may help; the last one again and again."""
KNOWN_S = 600.0
"""An environment that nobody has asked for so long is looked for anew: its files may have gone."""
SPECS_KEPT = 1000

log = logging.getLogger("hotplate.environments")


@dataclass(frozen=True)
class EnvironmentSettings:
    """How environments are built on a cluster."""

    release: str
    """The namespace of the installation."""
    runtimes: Sequence[RuntimeImage]
    """One of each Python; the first one of a Python is what is built in, and what was built in
    another one of them goes on."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """Variables of all builds: package indexes and proxies, as `for_pod_build` gives them."""
    memory_bytes: int = 4 << 30
    """What a build may use; the pod's limit."""
    shared: bool = False
    """Whether organizations trust each other, and share environments."""
    pauses_s: Sequence[float] = PAUSES_S


class Asker(NamedTuple):
    """A revision that needs an environment."""

    organization: str
    deployment: str
    revision: int


@dataclass
class KnownEnvironment:
    """What is known of one environment now."""

    digest: str
    owner: str
    bentos: set[str] = field(default_factory=set)
    """Those that use it, as far as they have asked."""
    noted: set[str] = field(default_factory=set)
    """Those of them that its note names."""
    askers: set[Asker] = field(default_factory=set)
    """Those that have waited for its last build."""
    ready: PodEnvironment | None = None
    failure: EnvironmentFailed | None = None
    task: asyncio.Task[None] | None = None
    """What looks for it, or has it built."""
    reason: str = ""
    log: str = ""
    """The file with the output of its last build."""
    failures: int = 0
    again_at: float = 0.0
    asked_at: float = 0.0
    """By the loop's clock, as `again_at`."""
    changed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def is_idle(self, now: float) -> bool:
        """Whether nobody has asked for it for so long that its files may have gone."""
        return self.task is None and now - self.asked_at > KNOWN_S


class JobEnvironments(Environments):
    """Those of one installation; lives on one event loop."""

    def __init__(
        self, blobs: BlobStore, jobs: BuildJobs, ticket_key: bytes, settings: EnvironmentSettings
    ) -> None:
        self._notes, self._jobs, self._key = EnvironmentNotes(blobs), jobs, ticket_key
        self._settings = settings
        self._known: dict[str, KnownEnvironment] = {}
        self._specs: dict[tuple[str, str, str], EnvironmentSpec] = {}
        self._compiler = Path(bytecode.__file__).read_text(encoding="utf-8")
        self._subscribers: list[Callable[[], None]] = []
        self._tasks = BackgroundTasks()

    async def of(self, workload: Workload, bento: Bento, secrets: SecretSet) -> PodEnvironment:
        spec = await self._spec(workload, bento, secrets)
        runtimes = runtimes_of(spec.python_version, self._settings.runtimes)
        owner = self._owner(workload, secrets)
        digests = [digest_of(owner, spec.digest, runtime.image) for runtime in runtimes]
        known = self._known_of(owner, digests[0])
        known.bentos.add(workload.bento_manifest)
        if known.ready is not None:
            if workload.bento_manifest not in known.noted:
                self._note_use(known, known.ready.digest)
            return known.ready
        key = workload.key
        asker = Asker(key.organization, key.deployment, key.revision)
        if known.task is None:
            if (failure := self._failure(known, asker)) is not None:
                raise failure
            known.askers.clear()
            job = self._job(workload, bento, spec, runtimes[0], known)
            making = self._make(known, digests, job)
            known.reason, known.log, known.failure = LOOKED_FOR, "", None
            known.task = self._tasks.start(making, name=f"environment {known.digest}")
        known.askers.add(asker)
        raise BeingPrepared(known.reason, log=known.log)

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    async def close(self) -> None:
        """Leave; Jobs go on, and whoever asks for their environments next follows them."""
        await self._tasks.cancel()

    def known(self) -> list[KnownEnvironment]:
        """All that were asked for lately. To be called from any thread."""
        return list(self._known.values())

    def log(self, digest: str) -> Path:
        """The file with the output of an environment's last build; it need not be there."""
        return self._jobs.log(digest)

    def manifests(self) -> Set[str]:
        """Those of environments that are in use."""
        self._forget_idle()
        return {each.ready.manifest for each in self.known() if each.ready is not None}

    def notes(self) -> Set[str]:
        """The names of the notes of environments that are in use, or are being made."""
        self._forget_idle()
        found = (each.ready.digest if each.ready else each.digest for each in self.known())
        return set(map(name_of, found))

    def _forget_idle(self) -> None:
        """Whoever asks for one of them looks for its note first, which may go from now on."""
        now = _now()
        self._known = {key: each for key, each in self._known.items() if not each.is_idle(now)}

    async def _spec(self, workload: Workload, bento: Bento, secrets: SecretSet) -> EnvironmentSpec:
        """Raises `EnvironmentFailed`."""
        env = build_variables(workload, bento.envs, secrets.env)
        key = (workload.bento_manifest, json.dumps(env, sort_keys=True), secrets.digest)
        spec = self._specs.pop(key, None)
        if spec is None:
            given = (bento.folder, bento.image, env, secrets, bento.files)
            spec = await asyncio.to_thread(read_spec, *given)
        self._specs[key] = spec
        while len(self._specs) > SPECS_KEPT:
            del self._specs[next(iter(self._specs))]
        return spec

    def _owner(self, workload: Workload, secrets: SecretSet) -> str:
        shared = self._settings.shared and not secrets
        return SHARED if shared else organization_folder(workload.owned_by)

    def _known_of(self, owner: str, digest: str) -> KnownEnvironment:
        known = self._known.get(digest)
        if known is None or known.is_idle(_now()):
            known = self._known[digest] = KnownEnvironment(digest, owner)
        known.asked_at = _now()
        return known

    def _failure(self, known: KnownEnvironment, asker: Asker) -> EnvironmentFailed | None:
        """Why it is not tried now."""
        failure = known.failure
        if failure is None or (not failure.retry and asker not in known.askers):
            return None
        if failure.retry and _now() >= known.again_at:
            return None
        retry, no_room = failure.retry, failure.no_room
        return EnvironmentFailed(str(failure), retry=retry, no_room=no_room, log=failure.log)

    def _job(
        self,
        workload: Workload,
        bento: Bento,
        spec: EnvironmentSpec,
        runtime: RuntimeImage,
        known: KnownEnvironment,
    ) -> JobBuild:
        settings, manifest = self._settings, workload.bento_manifest
        told = instructions(
            spec,
            bento.files or (),
            runtime,
            settings.inherited,
            self._compiler,
            settings.memory_bytes,
        )
        ticket = Ticket(
            namespace=namespace_of(settings.release),
            service_account=ACCOUNT,
            organization=workload.key.organization,
            deployment="",
            revision=0,
            service="",
            use=Use.BUILD,
            bento=manifest,
            note=name_of(known.digest),
            about=about(known.owner, known.digest, runtime.image, manifest),
        )
        return JobBuild(
            digest=known.digest,
            organization=workload.key.organization,
            image=runtime.image,
            command=command(runtime),
            ticket=signed(ticket, self._key),
            instructions=asdict(told),
            container_env=CONTAINER_ENV,
        )

    async def _make(self, known: KnownEnvironment, digests: Sequence[str], job: JobBuild) -> None:
        """Look for the environment under these digests, and have it built where there is none;
        never raises."""
        try:
            known.ready = await self._look(known, digests) or await self._build(known, job)
            known.failure, known.failures = None, 0
        except EnvironmentFailed as error:
            self._failed(known, error)
        except (CacheError, OSError) as error:
            self._failed(known, EnvironmentFailed(str(error), retry=True))
        except Exception as error:  # a bug must not leave those that wait without an answer
            log.exception("environment %s", known.digest)
            said = f"{type(error).__name__}: {error}"
            self._failed(known, EnvironmentFailed(said, retry=True))
        finally:
            known.task = None
            self._tell(known)

    async def _look(self, known: KnownEnvironment, digests: Sequence[str]) -> PodEnvironment | None:
        """Raises `CacheError`."""
        for digest in digests:
            bentos = sorted(known.bentos)
            found = await asyncio.to_thread(self._notes.use, digest, bentos)
            if found is not None:
                return _ready(known, found, bentos)
        return None

    async def _build(self, known: KnownEnvironment, job: JobBuild) -> PodEnvironment:
        """Raises `EnvironmentFailed` and `CacheError`."""

        def tell(waits_for: str) -> None:
            known.reason = f"{BUILDING}: {waits_for}" if waits_for else BUILDING
            self._tell(known)

        known.log = str(self._jobs.log(known.digest))
        tell("")
        outcome = await self._jobs.build(job, tell)
        if outcome.end is not BuildEnd.DONE:
            raise EnvironmentFailed(
                outcome.sentence, retry=outcome.retry, no_room=outcome.no_room, log=_tail(outcome)
            )
        bentos = sorted(known.bentos)
        went = {
            "built_at": datetime.now(UTC).timestamp(),
            "build_s": round(outcome.took_s, 3),
            "log_tail": list(outcome.log),
        }
        found = await asyncio.to_thread(self._notes.built, known.digest, bentos, went)
        if found is None:
            raise EnvironmentFailed(
                "The build has ended well and its environment was not published; it is tried "
                "again.",
                retry=True,
                log=_tail(outcome),
            )
        return _ready(known, found, bentos)

    def _failed(self, known: KnownEnvironment, error: EnvironmentFailed) -> None:
        known.failure = error
        if not error.retry:
            known.failures = 0
            return
        pauses_s = self._settings.pauses_s
        pause_s = pauses_s[min(known.failures, len(pauses_s) - 1)]
        known.failures += 1
        known.again_at = _now() + pause_s
        asyncio.get_running_loop().call_at(known.again_at, self._tell, known)

    def _note_use(self, known: KnownEnvironment, digest: str) -> None:
        """One more bento uses it."""
        bentos = sorted(known.bentos - known.noted)
        known.noted.update(bentos)

        async def note() -> None:
            try:
                await asyncio.to_thread(self._notes.use, digest, bentos)
            except CacheError as error:
                known.noted.difference_update(bentos)
                log.warning("it is not noted that environment %s is used: %s", digest, error)

        self._tasks.start(note(), name=f"use of environment {digest}")

    def _tell(self, known: KnownEnvironment) -> None:
        known.changed_at = datetime.now(UTC)
        for changed in self._subscribers:
            changed()


def _ready(
    known: KnownEnvironment, found: NotedEnvironment, bentos: Sequence[str]
) -> PodEnvironment:
    known.noted |= found.bentos | set(bentos)
    return PodEnvironment(found.digest, found.manifest, found.image, found.owner)


def _tail(outcome: BuildOutcome) -> tuple[str, ...]:
    return tuple(outcome.log)


def _now() -> float:
    return asyncio.get_running_loop().time()
