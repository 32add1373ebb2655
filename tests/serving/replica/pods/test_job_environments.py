"""Environments of pods: known, looked for, built, failed, and used by further deployments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.ticket import Use, key_of
from hotplate.deploy.cluster.builds.spec import BuildEnd, BuildOutcome
from hotplate.deploy.errors import BeingPrepared
from hotplate.deploy.workload import Workload
from hotplate.serving.replica.bento import read_bento
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.pods.environments import PodEnvironment
from hotplate.serving.replica.pods.job_environments import (
    BUILDING,
    LOOKED_FOR,
    JobEnvironments,
)
from hotplate.serving.replica.pods.runtimes import RuntimeImage
from hotplate.serving.replica.pods.settings import EnvironmentSettings
from hotplate.serving.replica.secret_values import SecretSet
from tests.support.patience import until
from tests.support.replica.bentos import write_bento
from tests.support.replica.build_jobs import DONE, MANIFEST, BuildsInMemory
from tests.support.replica.replicas import workload

KEY = key_of("cluster token")
FIRST = replace(workload(), bento_manifest="ab" * 32)
NONE = SecretSet()
SETTINGS = EnvironmentSettings(
    release="rel",
    runtimes=[RuntimeImage("3.11", "runtime:2"), RuntimeImage("3.11", "runtime:1")],
    inherited={"UV_DEFAULT_INDEX": "http://index/simple"},
    pauses_s=(0.05, 0.1),
)
FAILED = BuildOutcome(BuildEnd.FAILED, "No index has colour.", log=("colour?",))
AWAY = BuildOutcome(BuildEnd.FAILED, "The index cannot be reached.", retry=True, no_room=True)


def revision(
    number: int, organization: str = "acme", bento: str = FIRST.bento_manifest
) -> Workload:
    key = replace(FIRST.key, revision=number, organization=organization)
    return replace(FIRST, key=key, bento_manifest=bento)


@dataclass
class Bench:
    """Who has the environments, and what is asked of them."""

    environments: JobEnvironments
    builds: BuildsInMemory
    blobs: BlobStore
    bento: Path
    changes: int = 0
    shown: list[str] = field(default_factory=list)

    async def of(self, given: Workload = FIRST, secrets: SecretSet = NONE) -> PodEnvironment:
        return await self.environments.of(given, read_bento(self.bento, Hubs()), secrets)

    async def prepared(self, given: Workload = FIRST, secrets: SecretSet = NONE) -> str:
        """What is said while it is prepared; "" once it is not."""
        try:
            await self.of(given, secrets)
        except BeingPrepared as being:
            return str(being)
        return ""

    async def begin(self, given: Workload = FIRST, secrets: SecretSet = NONE) -> None:
        """Returns when its build runs."""
        count = len(self.builds.begun)
        assert await self.prepared(given, secrets)
        await until(lambda: len(self.builds.begun) > count)

    async def ready(self, given: Workload = FIRST, secrets: SecretSet = NONE) -> PodEnvironment:
        async def is_ready() -> bool:
            return not await self.prepared(given, secrets)

        await until(is_ready)
        return await self.of(given, secrets)

    async def failure(self, given: Workload = FIRST) -> EnvironmentFailed:
        async def failed() -> EnvironmentFailed | None:
            try:
                assert await self.prepared(given)
            except EnvironmentFailed as error:
                return error
            return None

        found = await until(failed)
        assert found is not None
        return found

    async def at_rest(self) -> None:
        """Returns when nothing is looked for or built."""
        await until(lambda: all(each.task is None for each in self.environments.known()))

    async def told(self) -> None:
        """Returns when something has changed."""
        before = self.changes
        await until(lambda: self.changes > before)


def bench_of(folder: Path, blobs: BlobStore, settings: EnvironmentSettings = SETTINGS) -> Bench:
    builds = BuildsInMemory(blobs, KEY, folder)
    bento = folder / "bento"
    if not bento.exists():
        write_bento(bento, "", requirements="colour==1\n")
    made = Bench(JobEnvironments(blobs, builds, KEY, settings), builds, blobs, bento)

    def changed() -> None:
        made.changes += 1

    made.environments.subscribe(changed)
    return made


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/store")


@pytest.fixture
async def bench(tmp_path: Path, blobs: BlobStore) -> AsyncIterator[Bench]:
    made = bench_of(tmp_path, blobs)
    yield made
    await made.environments.close()


async def test_nobody_has_it_so_it_is_built_once_and_published(bench: Bench) -> None:
    assert await bench.prepared() == LOOKED_FOR
    await until(lambda: bench.builds.begun)
    with pytest.raises(BeingPrepared, match=BUILDING) as being:
        await bench.of(revision(2))
    (job,) = bench.builds.begun
    assert being.value.log == str(bench.builds.log(job.digest))
    before = bench.changes
    bench.builds.tell("No node takes it: no cpu")
    assert await bench.prepared() == f"{BUILDING}: No node takes it: no cpu"
    assert bench.changes == before + 1
    bench.builds.publish()
    bench.builds.end()
    found = await bench.ready()
    assert (found.manifest, found.image, found.owner) == (MANIFEST, "runtime:2", "acme")
    assert found.digest == job.digest
    assert await bench.of(revision(2)) == found
    assert len(bench.builds.begun) == 1
    assert bench.environments.manifests() == {MANIFEST}
    note = bench.blobs.get_note(f"environments/{job.digest}")
    assert note is not None
    assert (note["build_s"], note["log_tail"]) == (1.5, ["built"])
    assert bench.environments.notes() == {f"environments/{job.digest}"}


async def test_its_job_may_publish_for_its_organization_alone(bench: Bench) -> None:
    await bench.begin()
    (job,) = bench.builds.begun
    assert (job.organization, job.image) == ("acme", "runtime:2")
    assert job.command[0] == "python3.11"
    assert job.name == f"env-{job.digest[:16]}"
    ticket = bench.builds.ticket()
    assert ticket.use is Use.BUILD
    assert (ticket.namespace, ticket.service_account) == ("rel-builds", "default")
    assert (ticket.organization, ticket.bento) == ("acme", FIRST.bento_manifest)
    assert ticket.note == f"environments/{job.digest}"
    assert ticket.about["organization"] == "acme"
    env = job.instructions["env"]
    assert env["UV_DEFAULT_INDEX"] == "http://index/simple"


async def test_what_another_control_plane_has_had_built_is_known(
    tmp_path: Path, blobs: BlobStore, bench: Bench
) -> None:
    await bench.begin()
    bench.builds.publish()
    bench.builds.end()
    found = await bench.ready()
    later = bench_of(tmp_path, blobs)
    assert await later.ready() == found
    assert later.builds.begun == []
    await later.environments.close()


async def test_what_was_built_in_an_older_image_goes_on_while_that_is_listed(
    tmp_path: Path, blobs: BlobStore
) -> None:
    new, old = SETTINGS.runtimes
    before = bench_of(tmp_path, blobs, replace(SETTINGS, runtimes=[old]))
    await before.begin()
    before.builds.publish()
    before.builds.end()
    found = await before.ready()
    await before.environments.close()
    upgraded = bench_of(tmp_path, blobs)
    assert await upgraded.ready() == found
    assert found.image == "runtime:1"
    assert upgraded.environments.notes() == {f"environments/{found.digest}"}
    await upgraded.environments.close()
    without = bench_of(tmp_path, blobs, replace(SETTINGS, runtimes=[new]))
    await without.begin()
    await without.environments.close()


async def test_a_further_bento_is_noted_as_its_user(bench: Bench) -> None:
    await bench.begin()
    bench.builds.publish()
    bench.builds.end()
    found = await bench.ready()
    other = "ef" * 32
    assert await bench.of(revision(1, bento=other)) == found
    name = f"environments/{found.digest}"
    await until(lambda: other in (bench.blobs.get_note(name) or {})["bentos"])


async def test_a_failure_is_that_of_the_revisions_that_have_waited(bench: Bench) -> None:
    await bench.begin()
    assert await bench.prepared(revision(2))
    bench.builds.end(FAILED)
    for number in (1, 2, 1):
        failed = await bench.failure(revision(number))
        assert str(failed) == "No index has colour."
        assert (failed.log, failed.retry, failed.unbuilt) == (("colour?",), False, True)
    assert len(bench.builds.begun) == 1
    await bench.begin(revision(3))  # somebody has mended it perhaps
    bench.builds.publish()
    bench.builds.end()
    await bench.ready(revision(3))
    await bench.ready(revision(1))


async def test_a_later_control_plane_knows_of_a_failure_and_does_not_try_it_again(
    tmp_path: Path, blobs: BlobStore, bench: Bench
) -> None:
    await bench.begin()
    assert await bench.prepared(revision(2))
    bench.builds.end(FAILED)
    before = await bench.failure()
    later = bench_of(tmp_path, blobs)
    for number in (1, 2):
        failed = await later.failure(revision(number))
        assert (str(failed), failed.log) == (str(before), before.log)
    assert later.builds.begun == []
    await later.begin(revision(3))
    later.builds.publish()
    later.builds.end()
    await later.ready(revision(1))
    await later.environments.close()


async def test_what_may_pass_is_tried_again_with_growing_pauses(bench: Bench) -> None:
    clock = asyncio.get_running_loop().time
    ended: list[float] = []
    for number in range(3):
        await bench.begin()
        if number:
            assert clock() - ended[-1] >= SETTINGS.pauses_s[number - 1]
        ended.append(clock())
        bench.builds.end(AWAY)
        failed = await bench.failure()
        assert failed.retry and failed.no_room
        await bench.told()  # whoever asks then is not refused


async def test_a_build_that_publishes_nothing_is_tried_again(bench: Bench) -> None:
    await bench.begin()
    bench.builds.end()
    failed = await bench.failure()
    assert failed.retry and "not published" in str(failed)


async def test_without_a_store_it_is_no_failure_of_the_bento(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    bench = bench_of(tmp_path, BlobStore(f"file://{tmp_path}/store"))
    failed = await bench.failure()
    assert failed.retry
    assert bench.builds.begun == []
    await bench.environments.close()


async def test_organizations_have_their_own_unless_they_trust_each_other(
    tmp_path: Path, blobs: BlobStore, bench: Bench
) -> None:
    await bench.begin()
    await bench.begin(revision(1, "other"))
    first, second = bench.builds.begun
    assert first.digest != second.digest
    trusting = bench_of(tmp_path, blobs, replace(SETTINGS, shared=True))
    await trusting.begin()
    assert await trusting.prepared(revision(1, "other"))
    assert len(trusting.builds.begun) == 1
    own = SecretSet({"TOKEN": "value"}, digest="versions")
    await trusting.begin(secrets=own)
    assert trusting.builds.ticket().about["organization"] == "acme"
    assert "value" in trusting.builds.begun[-1].instructions["masked"]
    await trusting.environments.close()


async def test_a_python_that_no_image_has_fails_the_revision(
    tmp_path: Path, blobs: BlobStore
) -> None:
    settings = replace(SETTINGS, runtimes=[RuntimeImage("3.12", "runtime:3")])
    bench = bench_of(tmp_path, blobs, settings)
    with pytest.raises(EnvironmentFailed, match=r"Python 3\.11; it has 3\.12"):
        await bench.of()
    assert bench.builds.begun == []


@dataclass
class Model:
    """What is to be said, by what has happened."""

    published: bool = False
    waiting: set[int] = field(default_factory=set)
    """Revisions that wait for the build that runs; none = none runs."""
    failed_for: set[int] = field(default_factory=set)

    def ask(self, number: int) -> str:
        if self.published:
            return "ready"
        if not self.waiting and number in self.failed_for:
            return "failed"
        self.waiting.add(number)
        return "being built"

    def end(self, how: str) -> None:
        self.published = how == "done"
        if how == "failed":
            self.failed_for |= self.waiting
        self.waiting.clear()


ACTIONS = st.lists(
    st.sampled_from(["1", "2", "3", "done", "failed", "away", "restart"]), max_size=9
)


async def asked(bench: Bench, number: int) -> str:
    async def settled() -> str:
        try:
            said = await bench.prepared(revision(number))
        except EnvironmentFailed as failed:
            return "" if failed.retry else "failed"
        return {LOOKED_FOR: "", BUILDING: "being built"}.get(said, "ready")

    return await until(settled)


async def walk(folder: Path, actions: Sequence[str]) -> None:
    blobs, model = BlobStore(f"file://{folder}/store"), Model()
    settings = replace(SETTINGS, pauses_s=(0.0,))
    bench = bench_of(folder, blobs, settings)
    for action in actions:
        builds = len(bench.builds.begun)
        if action.isdigit():
            running = bool(model.waiting)
            expected = model.ask(int(action))
            assert await asked(bench, int(action)) == expected
            begins = expected == "being built" and not running
            assert len(bench.builds.begun) == builds + begins
        elif action == "restart":
            await bench.environments.close()
            bench = bench_of(folder, blobs, settings)
            model.waiting.clear()
        elif model.waiting:
            if action == "done":
                bench.builds.publish()
            bench.builds.end({"done": DONE, "failed": FAILED, "away": AWAY}[action])
            await bench.at_rest()
            model.end(action)
    await bench.environments.close()


@given(ACTIONS)
def test_whatever_happens_it_is_built_when_it_may_help_and_no_more(
    tmp_path_factory: pytest.TempPathFactory, actions: Sequence[str]
) -> None:
    asyncio.run(walk(tmp_path_factory.mktemp("walk"), actions))
