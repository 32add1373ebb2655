"""Builds on an API server in memory: each ends once, however its pod, its Job, a watch or the
control plane end before."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hotplate.deploy.cluster.builds.jobs import ClusterBuildJobs
from hotplate.deploy.cluster.builds.spec import BuildEnd, BuildOutcome, BuildSettings, JobBuild
from hotplate.deploy.cluster.kinds import EVENT, JOB, POD, SECRET
from tests.deploy.cluster.builds.test_objects import BUILD
from tests.support.deploy.cluster import AT
from tests.support.deploy.cluster_jobs import SCHEDULED, ClusterWithJobs
from tests.support.deploy.cluster_server import ClusterServer
from tests.support.patience import until

SETTINGS = BuildSettings(first_pause_s=0.01, longest_pause_s=0.02, look_s=0.2, last_words_s=1.0)
SAID = json.dumps({"sentence": "No index has colour.", "retry": False, "no_room": False})
NAMESPACE = "hotplate-builds"
ANEW = "The build begins anew."


@pytest.fixture
async def server() -> AsyncIterator[ClusterServer]:
    async with ClusterServer(ClusterWithJobs()).running() as made:
        yield made


@pytest.fixture
def cluster(server: ClusterServer) -> ClusterWithJobs:
    assert isinstance(server.cluster, ClusterWithJobs)
    return server.cluster


@dataclass
class Asked:
    """A control plane that has asked for the build."""

    jobs: ClusterBuildJobs
    build: JobBuild
    told: list[str] = field(default_factory=list)
    task: asyncio.Task[BuildOutcome] | None = None

    def ask(self) -> asyncio.Task[BuildOutcome]:
        self.task = asyncio.create_task(self.jobs.build(self.build, self.told.append))
        return self.task

    @property
    def printed(self) -> list[str]:
        return self.jobs.log(self.build.digest).read_text().splitlines()


@asynccontextmanager
async def asking(
    server: ClusterServer, folder: Path, settings: BuildSettings = SETTINGS
) -> AsyncIterator[Asked]:
    api = server.api()
    jobs = ClusterBuildJobs(api, settings, folder)
    following = asyncio.create_task(jobs.run())
    asked = Asked(jobs, BUILD)
    asked.ask()
    try:
        yield asked
    finally:
        tasks = [each for each in (asked.task, following) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.close()


@pytest.fixture
async def asked(server: ClusterServer, tmp_path: Path) -> AsyncIterator[Asked]:
    async with asking(server, tmp_path) as made:
        yield made


async def outcome_of(asked: Asked) -> BuildOutcome:
    assert asked.task is not None
    return await asked.task


async def job_there(cluster: ClusterWithJobs) -> None:
    """It is there with its Secret and its pod."""
    wanted = {JOB.name, SECRET.name, POD.name}
    await until(lambda: wanted <= {ref.kind for ref in cluster.objects})


def nothing_left(cluster: ClusterWithJobs) -> bool:
    return not any(ref.kind in (JOB.name, SECRET.name, POD.name) for ref in cluster.objects)


async def test_what_it_prints_is_kept_from_its_first_line_while_it_runs(
    asked: Asked, cluster: ClusterWithJobs
) -> None:
    await job_there(cluster)
    assert cluster.job == (JOB.name, NAMESPACE, BUILD.name)
    cluster.run("$ uv venv", "made")
    await until(lambda: asked.printed == ["$ uv venv", "made"])
    cluster.run("$ uv pip install")
    await until(lambda: len(asked.printed) == 3)
    cluster.finish()
    outcome = await outcome_of(asked)
    assert outcome.end is BuildEnd.DONE
    assert list(outcome.log) == ["$ uv venv", "made", "$ uv pip install"]
    assert outcome.took_s > 0
    assert nothing_left(cluster)
    assert asked.told[-1] == ""


async def test_a_failure_has_its_sentence_and_its_last_lines(
    asked: Asked, cluster: ClusterWithJobs
) -> None:
    await job_there(cluster)
    cluster.run("no colour")
    cluster.finish(1, SAID)
    outcome = await outcome_of(asked)
    assert (outcome.end, outcome.sentence) == (BuildEnd.FAILED, "No index has colour.")
    assert list(outcome.log) == ["no colour"]
    assert nothing_left(cluster)


async def test_another_try_after_a_failure_is_another_job(
    asked: Asked, cluster: ClusterWithJobs
) -> None:
    await job_there(cluster)
    cluster.run("first")
    cluster.finish(1, SAID)
    await outcome_of(asked)
    again = asked.ask()
    await job_there(cluster)
    cluster.run("second")
    cluster.finish()
    assert (await again).end is BuildEnd.DONE
    assert asked.printed == ["second"]


@pytest.mark.parametrize("kill", [ClusterWithJobs.kill, lambda each: each.delete(each.job)])
async def test_one_that_is_killed_begins_anew(
    asked: Asked, cluster: ClusterWithJobs, kill: Callable[[ClusterWithJobs], None]
) -> None:
    await job_there(cluster)
    cluster.run("first")
    await until(lambda: asked.printed == ["first"])
    uid = cluster.objects[cluster.job]["metadata"]["uid"]
    kill(cluster)
    await until(lambda: cluster.jobs and cluster.objects[cluster.job]["metadata"]["uid"] != uid)
    await job_there(cluster)
    cluster.run("second")
    cluster.finish()
    assert (await outcome_of(asked)).end is BuildEnd.DONE
    first, between, second = asked.printed
    assert (first, second) == ("first", "second")
    assert between.endswith("The build begins anew.")
    assert nothing_left(cluster)


async def test_it_begins_anew_when_nothing_of_it_runs(
    server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path
) -> None:
    async with asking(server, tmp_path, replace(SETTINGS, last_words_s=600.0)) as asked:
        await job_there(cluster)
        pod = cluster.lose()
        await until(lambda: not cluster.jobs)
        cluster.objects[pod]["metadata"]["finalizers"] = []
        cluster.delete(pod)
        await job_there(cluster)
        cluster.finish()
        assert (await outcome_of(asked)).end is BuildEnd.DONE
    kinds = (JOB.name, POD.name)
    seen = [(each.what, each.ref.kind) for each in cluster.happened if each.ref.kind in kinds]
    assert seen.index(("DELETED", POD.name)) < _last(seen, ("ADDED", JOB.name))


async def test_a_node_that_is_lost_is_waited_for_for_a_while(
    server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path
) -> None:
    async with asking(server, tmp_path, replace(SETTINGS, last_words_s=0.1)) as asked:
        await job_there(cluster)
        pod = cluster.lose()
        await until(lambda: asked.printed[-1:] == [f"# Its pod was killed. {ANEW}"])
        await until(lambda: cluster.jobs)
        assert pod in cluster.objects


def _last(seen: list[tuple[str, str]], what: tuple[str, str]) -> int:
    return len(seen) - 1 - seen[::-1].index(what)


async def test_one_that_is_killed_again_and_again_has_failed(
    server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path
) -> None:
    """What is built kills itself perhaps."""
    async with asking(server, tmp_path, replace(SETTINGS, kills=3)) as asked:
        for _ in range(3):
            await job_there(cluster)
            cluster.run()
            cluster.kill()
            await until(lambda: not cluster.jobs)
        outcome = await outcome_of(asked)
    assert outcome.end is BuildEnd.FAILED and outcome.retry
    assert outcome.sentence.startswith("The build was killed 3 times.")


async def test_what_it_waits_for_is_told(asked: Asked, cluster: ClusterWithJobs) -> None:
    await job_there(cluster)
    await until(lambda: asked.told[-1:] == ["Its node prepares it."])
    event = {
        "apiVersion": "v1",
        "kind": EVENT.name,
        "metadata": {"name": "unmounted", "namespace": NAMESPACE},
        "type": "Warning",
        "lastTimestamp": AT,
        "involvedObject": {"uid": cluster.objects[cluster.pod]["metadata"]["uid"]},
        "message": "the volume's ticket was not signed",
    }
    cluster.put(event)
    await until(lambda: asked.told[-1] == "the volume's ticket was not signed")
    full = {**SCHEDULED, "status": "False", "message": "0/2 nodes are available"}
    cluster.wait({"conditions": [full]})
    await until(lambda: asked.told[-1] == "No node takes it: 0/2 nodes are available")
    cluster.run()
    await until(lambda: asked.told[-1] == "")


async def test_a_refused_job_is_told_and_made_later(
    server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path
) -> None:
    server.statuses = [403, 403]
    async with asking(server, tmp_path) as asked:
        await job_there(cluster)
        assert (
            asked.told[:2]
            == [
                "The cluster does not take the build: it was told to refuse",
            ]
            * 2
        )
        cluster.finish()
        assert (await outcome_of(asked)).end is BuildEnd.DONE


async def test_there_is_one_job_however_many_ask(
    asked: Asked, server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path
) -> None:
    async with asking(server, tmp_path / "other") as other:
        await job_there(cluster)
        cluster.run("shared")
        await until(lambda: asked.printed == other.printed == ["shared"])
        cluster.finish()
        for each in (asked, other):
            assert (await outcome_of(each)).end is BuildEnd.DONE
    assert [event.what for event in cluster.happened if event.ref.kind == JOB.name].count(
        "ADDED"
    ) == 1


async def test_a_job_that_ended_while_nobody_looked_is_taken_as_it_is(
    asked: Asked, server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path
) -> None:
    await job_there(cluster)
    assert asked.task is not None
    asked.task.cancel()
    cluster.run("alone")
    cluster.finish(1, SAID)
    async with asking(server, tmp_path / "next") as later:
        outcome = await outcome_of(later)
    assert outcome.sentence == "No index has colour."
    assert list(outcome.log) == ["alone"]
    assert nothing_left(cluster)


async def test_a_log_that_breaks_off_goes_on_where_it_was(
    asked: Asked, server: ClusterServer, cluster: ClusterWithJobs
) -> None:
    await job_there(cluster)
    cluster.run("one", "two")
    await until(lambda: len(asked.printed) == 2)
    server.cut()
    cluster.run("three")
    server.forget()
    await until(lambda: asked.printed == ["one", "two", "three"])
    server.cut()
    cluster.run("four")
    cluster.finish()
    await outcome_of(asked)
    assert asked.printed == ["one", "two", "three", "four"]


WRITES = 4
"""Of a build whose pod is killed once: Job, Secret, what removes the Job, and the next Job."""


@pytest.mark.parametrize("number", range(WRITES))
@pytest.mark.parametrize("moment", ["before_write", "after_write"])
async def test_a_control_plane_that_ends_at_any_write_is_followed_by_one_that_goes_on(
    server: ClusterServer, cluster: ClusterWithJobs, tmp_path: Path, number: int, moment: str
) -> None:
    hung, count = asyncio.Event(), itertools.count()

    def answered() -> bool:
        if next(count) != number:
            return True
        hung.set()
        return False

    setattr(server, moment, answered)

    async def killed_once() -> None:
        await job_there(cluster)
        cluster.kill()

    killing = asyncio.create_task(killed_once())
    async with asking(server, tmp_path / "first"):
        await hung.wait()
    killing.cancel()
    setattr(server, moment, lambda: True)
    async with asking(server, tmp_path / "second") as second:
        await job_there(cluster)
        cluster.run("in the end")
        cluster.finish()
        assert (await outcome_of(second)).end is BuildEnd.DONE
        assert second.printed[-1] == "in the end"
    assert nothing_left(cluster)
