"""For every fault: what `status` and `events` say happened, and what to do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from hotplate.cache.client import AgentClient
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.local.placement import Applicant, Capacity, place
from hotplate.deploy.process.exit_messages import ending
from hotplate.deploy.workload import Resources
from hotplate.machine.free_space import FreeSpace
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.gateways.route_links import RouteLinks
from hotplate.platform.controller.planning import messages
from hotplate.platform.controller.planning.plan import START_ATTEMPTS, plan
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, RolloutOutcome
from hotplate.platform.upkeep.checks import OneAgent, checks
from hotplate.serving.replica.inside.building.diagnosis import diagnose
from tests.support.control_plane.situations import deployment, key, observed, replica, revision

COMING = deployment(revision(1, RolloutOutcome.DEPLOYING), None)
STANDING = deployment(revision(1), revision(1))
REPLACING = deployment(revision(2, RolloutOutcome.DEPLOYING), revision(1))
UNREADY = "its last 3 readiness checks failed: HTTP 503"


def no_room(**amounts: Any) -> str:
    wanting = Applicant("a", key(1), Resources(**amounts), 0.0)
    return place([wanting], [], Capacity(cpus=2, memory_bytes=4 << 30)).waiting["a"]


def ill(state: ReplicaState, reason: str, **changes: Any) -> Replica:
    return replica("echo-1", state=state, reason=reason, **changes)


@dataclass(frozen=True)
class Fault:
    """One replica of a deployment, as a fault has left it."""

    found: Replica
    status: str
    what: str
    do: tuple[str, ...]
    of: Deployment = STANDING


BACKOFF, FAILED, PENDING = ReplicaState.BACKOFF, ReplicaState.FAILED, ReplicaState.PENDING
AGAIN = "it is started again after a pause"
MEND = "fix that and deploy again; 'hotplate logs echo' shows what it printed"
FAULTS: Mapping[str, Fault] = {
    "killed": Fault(
        ill(BACKOFF, ending(-9, 3.0), ready_at=1.0),
        "unhealthy",
        "killed by signal 9 after 3.0 s (SIGKILL: by hand, or by the kernel for lack of memory",
        (AGAIN,),
    ),
    "native code crashed": Fault(
        ill(BACKOFF, ending(-11, 3.0), ready_at=1.0), "unhealthy", "SIGSEGV: native code", (AGAIN,)
    ),
    "exited": Fault(
        ill(BACKOFF, ending(7, 3.0), ready_at=1.0),
        "unhealthy",
        "exited with code 7 after 3.0 s",
        (AGAIN,),
    ),
    "a first attempt that failed": Fault(
        ill(BACKOFF, ending(1, 3.0)), "deploying", "exited with code 1", (AGAIN,), COMING
    ),
    "cannot start": Fault(
        ill(BACKOFF, "not ready within 60 s", restarts=START_ATTEMPTS - 1),
        "failed",
        "service 'Echo' cannot start: not ready within 60 s (attempt 3)",
        (MEND,),
        COMING,
    ),
    "a revision that cannot start": Fault(
        replace(ill(FAILED, "model 'm:1' does not exist here."), key=key(2)),
        "failed",
        "revision 2: service 'Echo' cannot start: model 'm:1' does not exist here; fix that",
        (MEND, "revision 1 keeps serving"),
        REPLACING,
    ),
    "no such package": Fault(
        ill(
            FAILED,
            diagnose("Because torhc was not found in the package registry", "3.11", "x").sentence,
        ),
        "failed",
        "No package index of this machine has torhc; check its name and version",
        (MEND,),
        COMING,
    ),
    "no index": Fault(
        ill(BACKOFF, diagnose("dns error", "3.11", "x").sentence),
        "deploying",
        "The package index cannot be reached; check the network",
        (AGAIN,),
        COMING,
    ),
    "waiting for room": Fault(
        ill(PENDING, no_room(cpus=4)),
        "deploying",
        "needs 4.0 CPUs: this machine has 2.0",
        ("ask for less, or use a larger machine",),
        COMING,
    ),
    "unready": Fault(
        ill(ReplicaState.UNREADY, UNREADY, ready_at=1.0),
        "unhealthy",
        UNREADY,
        ("it gets no request until a check succeeds",),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_status_says_what_happened_and_what_to_do(fault: Fault) -> None:
    now = observed(fault.of, fault.found, desired={key(1): 1})
    step = plan(now)
    assert step.status == fault.status
    assert fault.what in step.reason
    assert all(words in step.reason for words in fault.do)


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS.values() if f.found.state is not PENDING], ids=lambda f: f.what[:30]
)
def test_the_event_says_it_too_and_where_the_log_is(fault: Fault) -> None:
    said = messages.replica_problem(fault.found)
    assert said.startswith("replica echo-1: ")
    assert fault.found.reason.removesuffix(".") in said and ".;" not in said
    assert said.endswith("'hotplate logs echo' shows what it printed")
    assert ("its requests were interrupted" in said) == (
        fault.found.state is BACKOFF and fault.found.ready_at is not None
    )


class Broken:
    """A database that takes nothing."""

    async def run(self, call: object) -> None:
        raise StoreFailed("the database cannot be used now (database or disk is full)")

    check = None


def unconnected() -> RouteLinks:
    return RouteLinks(lambda routes: None, lambda: None, lambda kind, message: None)


async def nothing() -> str:
    return ""


async def test_every_part_of_the_platform_that_is_lost_says_what_to_do(tmp_path: Path) -> None:
    gateways = unconnected()
    agent = AgentClient("http://127.0.0.1:1", patience_s=0)
    more_than_there_is = FreeSpace(tmp_path, 1 << 60)
    said = {}
    database = cast("Store", Broken())
    asked = OneAgent(agent)
    given = (gateways, database, [more_than_there_is], asked.answers, asked.troubles)
    for check in checks(*given):
        said[check.lost] = await check.why_not()
    await agent.close()
    for kind, what, do in (
        ("GatewayLost", "no gateway is connected", "see that 'hotplate up' runs"),
        ("AgentLost", "agent http://127.0.0.1:1 does not answer", "see that 'hotplate up' runs"),
        ("StoreFailed", "database or disk is full", "deployments go on as they are"),
        ("DiskShort", f"the disk of {tmp_path} has", "free some space"),
    ):
        assert what in said[kind]
        assert do in said[kind]


async def test_what_is_well_says_nothing(tmp_path: Path, store: Store) -> None:
    found = checks(unconnected(), store, [FreeSpace(tmp_path)], nothing, nothing)
    well = [check for check in found if check.lost in ("StoreFailed", "DiskShort")]
    assert [await check.why_not() for check in well] == ["", ""]


@pytest.mark.sqlite
async def test_a_database_that_is_locked_is_told_and_its_recovery_seen(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (check,) = [
        check
        for check in checks(unconnected(), store, [], nothing, nothing)
        if check.lost == "StoreFailed"
    ]
    with sqlite3.connect(tmp_path / "hotplate.db") as other:
        other.execute("DROP TABLE learnt")
    with pytest.raises(StoreFailed):
        await store.run(store.learnt.put, "key", 1)
    assert "no such table" in await check.why_not()
    with sqlite3.connect(tmp_path / "hotplate.db") as other:
        other.execute("CREATE TABLE learnt (key TEXT PRIMARY KEY, value JSON NOT NULL)")
    assert await check.why_not() == ""


def test_checks_that_fail_are_told_once_and_so_is_their_end() -> None:
    state = DeploymentState(STANDING)
    well, unwell = replica("echo-1"), ill(ReplicaState.UNREADY, UNREADY, ready_at=1.0)
    assert (state.newly_unready([well]), state.ready_again([well])) == ([], [])
    assert (state.newly_unready([unwell]), state.ready_again([unwell])) == ([unwell], [])
    assert (state.newly_unready([unwell]), state.ready_again([unwell])) == ([], [])
    assert (state.newly_unready([well]), state.ready_again([well])) == ([], [well])
    assert (state.newly_unready([well]), state.ready_again([well])) == ([], [])
    assert "it gets requests" in messages.ready_again(well)
