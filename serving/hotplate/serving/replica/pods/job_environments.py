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
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.cluster.builds.spec import BuildEnd, BuildJobs, BuildOutcome, JobBuild
from hotplate.deploy.errors import BeingPrepared
from hotplate.deploy.workload import Workload
from hotplate.machine.background import BackgroundTasks
from hotplate.serving.replica.bento import Bento
from hotplate.serving.replica.environments.folder import SHARED, organization_folder
from hotplate.serving.replica.environments.spec import EnvironmentSpec, read_spec
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.pods.environments import Environments, PodEnvironment
from hotplate.serving.replica.pods.known_environment import Asker, KnownEnvironment
from hotplate.serving.replica.pods.notes import (
    EnvironmentNotes,
    NotedEnvironment,
    NotedFailure,
    digest_of,
    name_of,
)
from hotplate.serving.replica.pods.orders import BuildOrders
from hotplate.serving.replica.pods.runtimes import runtimes_of
from hotplate.serving.replica.pods.settings import EnvironmentSettings
from hotplate.serving.replica.secret_values import SecretSet
from hotplate.serving.replica.variables import build_variables

LOOKED_FOR = "its Python environment is looked for"
BUILDING = "its Python environment is being built"
SPECS_KEPT = 1000

log = logging.getLogger("hotplate.environments")


class JobEnvironments(Environments):
    """Those of one installation; lives on one event loop."""

    def __init__(
        self, blobs: BlobStore, jobs: BuildJobs, ticket_key: bytes, settings: EnvironmentSettings
    ) -> None:
        self._notes, self.jobs, self._settings = EnvironmentNotes(blobs), jobs, settings
        self._orders = BuildOrders(ticket_key, settings)
        self._known: dict[str, KnownEnvironment] = {}
        self._specs: dict[tuple[str, str, str], EnvironmentSpec] = {}
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
            if (failure := known.failure_of(asker, _now())) is not None:
                raise failure
            known.askers.clear()
            given = (workload, bento, spec, runtimes[0], owner, known.digest)
            making = self._make(known, digests, self._orders.order(*given))
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
        return self.jobs.log(digest)

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
        """Raises `CacheError`; and `EnvironmentFailed` where an earlier control plane has had it
        built for the same revisions."""
        for digest in digests:
            bentos = sorted(known.bentos)
            found = await asyncio.to_thread(self._notes.use, digest, bentos)
            if found is not None:
                return _ready(known, found, bentos)
        failure = await asyncio.to_thread(self._notes.failure, known.digest)
        if failure is not None and known.askers <= failure.askers:
            known.told |= failure.askers
            raise EnvironmentFailed(failure.sentence, log=failure.log)
        return None

    async def _build(self, known: KnownEnvironment, job: JobBuild) -> PodEnvironment:
        """Raises `EnvironmentFailed` and `CacheError`."""

        def tell(waits_for: str) -> None:
            known.reason = f"{BUILDING}: {waits_for}" if waits_for else BUILDING
            self._tell(known)

        known.log = str(self.jobs.log(known.digest))
        tell("")
        outcome = await self.jobs.build(job, tell)
        if outcome.end is not BuildEnd.DONE:
            if not outcome.retry:
                await self._note_failure(known, outcome)
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

    async def _note_failure(self, known: KnownEnvironment, outcome: BuildOutcome) -> None:
        failure = NotedFailure(
            known.digest,
            known.owner,
            frozenset(known.bentos),
            outcome.sentence,
            _tail(outcome),
            frozenset(known.told | known.askers),
        )
        try:
            await asyncio.to_thread(self._notes.failed, failure)
        except CacheError as error:
            log.warning("the failure of environment %s is not noted: %s", known.digest, error)

    def _failed(self, known: KnownEnvironment, error: EnvironmentFailed) -> None:
        known.failure = error
        if not error.retry:
            known.failures = 0
            known.told |= known.askers
            return
        pauses_s = self._settings.pauses_s
        pause_s = pauses_s[min(known.failures, len(pauses_s) - 1)]
        known.failures += 1
        known.again_at = _now() + pause_s

        def try_again() -> None:
            if known.failure is error:
                known.again_at = 0.0
                self._tell(known)

        asyncio.get_running_loop().call_later(pause_s, try_again)

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
