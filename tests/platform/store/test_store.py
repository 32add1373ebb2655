from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete

from hotplate.platform.errors import Conflict, NotFound, PortsExhausted
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_records import deployment_record, deployment_records
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.history import SURPLUS, History
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import (
    ColdStart,
    DecisionRecord,
    Deployment,
    DesiredState,
    Kind,
    RolloutOutcome,
    TaskContent,
    Turn,
    User,
)
from hotplate.platform.store.tables import DeploymentRow
from hotplate.platform.store.task_state import Start, TaskEnd

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def user(store: Store) -> User:
    return store.identities.ensure_user("acme", "ada", "ada@example.com")


@pytest.fixture
def deployment(store: Store, user: User) -> Deployment:
    return make(store, user, "echo")


def make(store: Store, user: User, name: str) -> Deployment:
    tenant = user.organization.id
    store.artifacts.ensure_repository(tenant, Kind.BENTO, "echo")
    bento = store.artifacts.create(tenant, Kind.BENTO, "echo", ArtifactDraft("v1"))
    return store.deployments.create(user, name, RevisionDraft(bento.id, {"services": {}}))


def decision(number: int) -> DecisionRecord:
    return DecisionRecord(AT, 1, "Echo", number, number + 1, 2, f"decision {number}")


def test_of_decisions_the_newest_are_kept_and_fewer_the_longer_ago(
    store: Store, deployment: Deployment
) -> None:
    for number in range(0, 4000, 10):
        store.history.add_decisions(
            deployment.id, [decision(n) for n in range(number, number + 10)]
        )
    kept = store.history.decisions(deployment.id, limit=2000)
    assert len(kept) <= 1000
    assert kept[:500] == [decision(number) for number in range(3999, 3499, -1)]
    assert kept[-1] == decision(0)
    numbers = [one.replicas for one in kept]
    assert numbers == sorted(set(numbers), reverse=True)
    by_age = [
        sum(begin <= number < begin + 1000 for number in numbers) for begin in range(0, 4000, 1000)
    ]
    assert by_age == sorted(by_age) and by_age[0] > 0


def test_a_service_that_flaps_leaves_a_quiet_one_s_decisions(
    store: Store, deployment: Deployment
) -> None:
    quiet = replace(decision(0), service="Quiet")
    store.history.add_decisions(deployment.id, [quiet])
    for number in range(0, 2000, 100):
        flapping = [decision(n) for n in range(number, number + 100)]
        store.history.add_decisions(deployment.id, flapping)
    assert store.history.decisions(deployment.id, limit=1) == [decision(1999), quiet]
    assert quiet in store.history.decisions(deployment.id)


def test_decisions_are_read_up_to_a_moment(store: Store, deployment: Deployment) -> None:
    store.history.add_decisions(deployment.id, [decision(number) for number in range(10)])
    kept = store.history.decisions(deployment.id)
    assert store.history.decisions(deployment.id, limit=2) == kept[:2]
    assert store.history.decisions(deployment.id, until=AT - timedelta(seconds=1)) == []
    assert store.history.decisions(deployment.id, limit=1, until=AT) == kept[:1]


def test_of_cold_starts_the_last_hundred_are_kept_one_per_replica(
    store: Store, deployment: Deployment
) -> None:
    for number in range(102):
        store.history.put_cold_start(deployment.id, ColdStart(f"r{number}", 1, "Echo", AT, None))
    phases = ({"name": "init", "start": 1.0, "end": 2.0},)
    ready = ColdStart("r101", 1, "Echo", AT, AT, phases, pool="4b1f cpu", forked=True)
    store.history.put_cold_start(deployment.id, ready)
    kept = store.history.cold_starts(deployment.id)
    assert (len(kept), kept[0], kept[-1].replica) == (100, ready, "r2")


def test_older_rows_are_deleted_some_at_a_time_also_those_of_an_earlier_process(
    store: Store, deployment: Deployment
) -> None:
    for begin in (0, 140):
        history = History(store.database)
        for number in range(begin, begin + 140):
            history.put_cold_start(deployment.id, ColdStart(f"r{number}", 1, "Echo", AT, None))
    kept = store.history.cold_starts(deployment.id, limit=1000)
    assert 100 <= len(kept) <= 100 + SURPLUS
    assert [one.replica for one in kept] == [f"r{279 - number}" for number in range(len(kept))]


def test_what_is_written_of_a_deployment_that_is_gone_is_dropped(
    store: Store, deployment: Deployment
) -> None:
    store.deployments.forget(deployment.id)
    store.history.add_event(deployment.id, "ScaledUp", "too late")
    store.history.add_decisions(deployment.id, [decision(1)])
    store.history.put_cold_start(deployment.id, ColdStart("r1", 1, "Echo", AT, None))
    store.deployments.set_status(deployment, "running", "")
    assert store.history.events(deployment.id) == []
    assert store.deployments.get(deployment.id) is None


def test_a_deployment_that_is_forgotten_while_it_is_read_is_left_out(
    store: Store, deployment: Deployment
) -> None:
    with store.database.session() as session:
        row = session.get_one(DeploymentRow, deployment.id)
        session.execute(
            delete(DeploymentRow)
            .where(DeploymentRow.id == deployment.id)
            .execution_options(synchronize_session=False)
        )
        assert deployment_records(session, [row]) == []
        with pytest.raises(NotFound):
            deployment_record(session, row)


def test_what_is_found_of_a_deployment_does_not_hide_what_somebody_asks_for_meanwhile(
    store: Store, deployment: Deployment
) -> None:
    store.deployments.set_status(deployment, "running", "1 replica ready")
    draft = RevisionDraft(deployment.latest.bento.id, {"services": {}})
    store.deployments.update(deployment.id, draft, labels=None, force=True)
    store.deployments.set_status(deployment, "running", "2 replicas ready")
    updated = store.deployments.get(deployment.id)
    assert updated is not None and (updated.status, updated.reason) == ("deploying", "")
    store.deployments.set_status(updated, "running", "")
    store.deployments.terminate(deployment.id)
    store.deployments.set_status(updated, "running", "2 replicas ready")
    terminated = store.deployments.get(deployment.id)
    assert terminated is not None and terminated.status == "terminating"


def test_what_was_learnt_is_replaced_by_key(store: Store) -> None:
    assert store.learnt.get("policy") is None
    store.learnt.put("policy", {"level": 1})
    store.learnt.put("policy", {"level": 2})
    assert store.learnt.get("policy") == {"level": 2}


def test_a_deleted_deployment_keeps_its_port_until_it_is_torn_down(
    store: Store, user: User, deployment: Deployment
) -> None:
    store.deployments.delete(deployment.id)
    again = make(store, user, "echo")
    assert (deployment.port, again.port) == (7100, 7101)
    assert [item.wanted for item in store.deployments.all()] == [
        DesiredState.DELETED,
        DesiredState.RUNNING,
    ]
    store.deployments.forget(deployment.id)
    assert make(store, user, "third").port == 7100


def test_ids_are_never_given_out_twice(store: Store, user: User, deployment: Deployment) -> None:
    store.deployments.forget(deployment.id)
    assert make(store, user, "echo").id > deployment.id


def test_services_get_ports_beside_all_that_are_taken_and_keep_them(
    store: Store, user: User, deployment: Deployment
) -> None:
    revision = deployment.latest.id
    assert store.revisions.allocate_ports(revision, ["A", "B"]) == {"A": 7101, "B": 7102}
    assert store.revisions.allocate_ports(revision, ["B", "C"]) == {
        "A": 7101,
        "B": 7102,
        "C": 7103,
    }
    assert make(store, user, "other").port == 7104


def test_revisions_that_nothing_is_left_of_give_their_ports_back(
    store: Store, user: User, deployment: Deployment
) -> None:
    store.revisions.allocate_ports(deployment.latest.id, ["A", "B"])
    store.revisions.release_ports(deployment.id, {deployment.latest.number})
    assert make(store, user, "other").port == 7103
    store.revisions.release_ports(deployment.id, set())
    assert make(store, user, "third").port == 7101


def test_what_was_learnt_goes_by_the_beginning_of_its_key(store: Store) -> None:
    for key in ("decider/a_/x", "decider/a_/y", "decider/ab/x"):
        store.learnt.put(key, key)
    store.learnt.forget("decider/a_/")
    kept = [store.learnt.get(key) for key in ("decider/a_/x", "decider/a_/y", "decider/ab/x")]
    assert kept == [None, None, "decider/ab/x"]


def test_ports_that_are_used_up_are_said_so(database_url: str) -> None:
    def none_left(taken: set[int]) -> int:
        raise PortsExhausted("ports 1-1: all 1 are taken; delete a deployment")

    store = Store(Database(database_url), none_left)
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    with pytest.raises(PortsExhausted):
        make(store, user, "echo")
    assert store.deployments.of_organization(user.organization.id) == []
    store.close()


def test_the_serving_revision_stays_until_another_serves(
    store: Store, deployment: Deployment
) -> None:
    store.revisions.conclude_rollout(
        deployment.latest.id, RolloutOutcome.READY, "it answers", "revision 1"
    )
    bento = deployment.latest.bento.id
    changed, begins = store.deployments.update(
        deployment.id, RevisionDraft(bento, {"services": {"A": {}}}), None
    )
    assert begins
    assert changed.serving is not None
    assert (changed.serving.number, changed.latest.number) == (1, 2)
    store.revisions.conclude_rollout(
        changed.latest.id, RolloutOutcome.FAILED, "no such package", "it failed", ["last line"]
    )
    found = store.deployments.get(deployment.id)
    assert found is not None
    assert found.serving is not None
    assert (found.serving.number, found.latest.outcome) == (1, RolloutOutcome.FAILED)
    store.revisions.conclude_rollout(
        changed.latest.id, RolloutOutcome.READY, "it answers", "revision 1"
    )
    found = store.deployments.get(deployment.id)
    assert found is not None
    assert found.serving == found.latest
    store.revisions.stop_serving(deployment.id)
    found = store.deployments.get(deployment.id)
    assert found is not None
    assert found.serving is None


def test_a_secret_that_somebody_else_has_is_refused(store: Store, user: User) -> None:
    other = store.identities.ensure_user("rival", "eve", "eve@example.com")
    store.tokens.add_token(user, "laptop", "the-secret")
    assert store.tokens.add_token(user, "laptop", "the-secret") == "the-secret"
    with pytest.raises(Conflict):
        store.tokens.add_token(other, "laptop", "the-secret")
    (token,) = store.tokens.tokens(user.organization.id)
    with pytest.raises(NotFound):
        store.tokens.revoke_token(other.organization.id, token.uid)
    store.tokens.revoke_token(user.organization.id, token.uid)
    assert store.tokens.find_token("the-secret") is None


def test_tasks_are_kept_the_same_on_every_database(database_url: str) -> None:
    store = Store(Database(database_url))
    deployment = make(store, store.identities.ensure_user("acme", "ada", "ada@example.com"), "echo")
    content, turn = TaskContent(b"POST /toil\r\n", b"\x00\xff", 5 << 30, 1), Turn("beta", 6, "next")
    for name in ("one", "two"):
        store.tasks.add(name, "acme/echo", "/toil", content, turn)
    assert store.tasks.input_of("one") == ("/toil", content, turn)

    def gone(gateway: str) -> bool:
        return False

    store.tasks.change("one", Start("g1"), gone)
    with pytest.raises(Conflict):
        store.tasks.change("one", Start("g2"), gone)
    offered = [(task.id, task.gateway, task.turn) for task in store.tasks.unfinished()]
    assert offered == [("one", "g1", turn), ("two", "", turn)]
    ended = store.tasks.change("one", TaskEnd("g1", 200), gone, answer=content, note="it is told")
    assert ended.completed_at is not None
    assert store.tasks.answer_of("one") == content
    assert store.tasks.counts(deployment.id) == {"completed": 1, "pending": 1}
    assert store.tasks.old(ended.completed_at + timedelta(seconds=1), 10) == ["one"]
    store.deployments.forget(deployment.id)
    assert sorted(store.tasks.old(AT, 10)) == ["one", "two"], "nobody's"
    store.tasks.forget(["one", "two"])
    assert store.tasks.old(AT, 10) == []
    store.close()


def test_the_store_works_the_same_on_every_database(database_url: str) -> None:
    store = Store(Database(database_url))
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    secrets = [store.tokens.add_token(user, f"laptop {number}") for number in range(20)]
    assert all(secret.isalnum() for secret in secrets), "a hyphen before one would make it a flag"
    token = store.tokens.find_token(store.tokens.add_token(user, "laptop"))
    assert token is not None
    assert token.user == user
    assert store.identities.key("transfers") == store.identities.key("transfers")
    deployment = make(store, user, "echo")
    with pytest.raises(Conflict):
        make(store, user, "echo")
    store.deployments.update(
        deployment.id, RevisionDraft(deployment.latest.bento.id, {"a": [1, None]}), None
    )
    store.revisions.conclude_rollout(
        deployment.latest.id, RolloutOutcome.READY, "it answers", "revision 1"
    )
    store.history.add_decisions(deployment.id, [decision(number) for number in range(3)])
    store.learnt.put("policy", {"level": 1})
    store.uploads.finish(deployment.latest.bento.id, "digest", 5 << 30)
    found = store.deployments.find(user.organization.id, "echo")
    assert found.latest.config == {"a": [1, None]}
    assert found.latest.bento.size_bytes == 5 << 30
    assert found.created_at == deployment.created_at
    store.deployments.delete(deployment.id)
    assert make(store, user, "echo").port == 7101
    store.deployments.forget(deployment.id)
    assert store.history.decisions(deployment.id) == []
    store.close()
