"""Which status a deployment has, and with which sentence, for each state of its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hotplate.autoscaler.sharing.allocation import Allocation
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.planning.observed import Observed, RolloutVerdict
from hotplate.platform.controller.planning.status import status_of
from hotplate.platform.store.records import RolloutOutcome
from tests.support.control_plane.situations import (
    deployment,
    key,
    observed,
    replica,
    revision,
    service,
)

READY, STARTING, PENDING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.PENDING
BACKOFF, FAILED, UNREADY = ReplicaState.BACKOFF, ReplicaState.FAILED, ReplicaState.UNREADY
ROLLED_OUT = deployment(revision(1), revision(1))
ROLLING_OUT = deployment(revision(1, RolloutOutcome.DEPLOYING), None)
REPLACING = deployment(revision(2, RolloutOutcome.DEPLOYING), revision(1))
SHORT = {key(1): Allocation(0, "the quota of 1 GPU is used")}


def at(name: str, state: ReplicaState, reason: str = "", **changes: Any) -> Replica:
    return replica(name, state=state, reason=reason, **changes)


def told(now: Observed, desired: int = 1) -> tuple[str, str]:
    return status_of(now, None, {key(1): desired})


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [
        ([], "revision 1 is starting"),
        ([at("a", STARTING)], "revision 1 is starting"),
        ([at("a", STARTING, "it builds")], "service 'Echo': it builds"),
        (
            [at("a", STARTING, "it loads"), at("b", STARTING, "it builds", build_log="log")],
            "service 'Echo': it builds",
        ),
        ([at("a", STARTING, "it builds"), at("b", PENDING, "no room")], "service 'Echo': no room"),
        ([at("a", PENDING), at("b", PENDING, "no room")], "service 'Echo': no room"),
        (
            [at("a", BACKOFF, "exited"), at("b", PENDING, "no room")],
            "service 'Echo': no room",
        ),
        (
            [at("a", BACKOFF, "exited")],
            "service 'Echo': exited; it is started again after a pause",
        ),
        ([at("a", READY, "it was slow")], "revision 1 is starting"),
    ],
)
def test_a_roll_out_says_what_it_waits_for(replicas: Sequence[Replica], sentence: str) -> None:
    assert told(observed(ROLLING_OUT, *replicas)) == ("deploying", sentence)


def test_a_roll_out_waits_for_its_own_replicas_and_quotas() -> None:
    old = at("a", PENDING, "no room")
    assert status_of(observed(REPLACING, old), None, {}) == (
        "deploying",
        "revision 2 is starting",
    )
    starting = at("a", STARTING, "it builds")
    waiting = observed(ROLLING_OUT, starting, allocations=SHORT)
    assert told(waiting) == ("deploying", "it waits: the quota of 1 GPU is used")


@pytest.mark.parametrize(
    ("replicas", "desired", "expected"),
    [
        ([], 0, ("scaled-to-zero", "no requests")),
        ([at("a", FAILED, "exited")], 0, ("scaled-to-zero", "no requests")),
        ([at("a", ReplicaState.STOPPING)], 0, ("scaled-to-zero", "no requests")),
        ([at("a", READY)], 0, ("running", "1 replica ready")),
        ([at("a", READY)], 1, ("running", "1 replica ready")),
        ([at("a", READY), at("b", READY)], 2, ("running", "2 replicas ready")),
        ([at("a", READY), at("b", STARTING)], 2, ("running", "1 replica ready")),
        ([at("a", READY), at("b", BACKOFF, "exited")], 2, ("running", "1 replica ready")),
        (
            [at("a", READY), at("b", PENDING, "no GPU")],
            2,
            ("running", "1 replica ready; 1 replica waits for room: no GPU"),
        ),
        (
            [at("a", READY), at("b", PENDING, "no GPU"), at("c", PENDING, "no GPU")],
            2,
            ("running", "1 replica ready; 2 replicas wait for room: no GPU"),
        ),
        ([at("a", READY), at("b", PENDING)], 2, ("running", "1 replica ready")),
        ([], 1, ("scaled-to-zero", "waking: 0 replicas starting")),
        ([at("a", STARTING)], 1, ("scaled-to-zero", "waking: 1 replica starting")),
        ([at("a", STARTING, "it loads")], 1, ("scaled-to-zero", "service 'Echo': it loads")),
        (
            [at("a", STARTING, "exited", restarts=1)],
            1,
            ("unhealthy", "service 'Echo': exited"),
        ),
        (
            [at("a", BACKOFF, "exited")],
            1,
            ("unhealthy", "service 'Echo': exited; it is started again after a pause"),
        ),
        (
            [at("a", UNREADY, "HTTP 503")],
            1,
            ("unhealthy", "service 'Echo': HTTP 503; it gets no request until a check succeeds"),
        ),
        (
            [at("a", FAILED, "no model")],
            1,
            (
                "unhealthy",
                "service 'Echo': no model; another try would fail too: fix that and deploy again",
            ),
        ),
        ([at("a", READY, restarts=1)], 1, ("running", "1 replica ready")),
    ],
)
def test_what_was_rolled_out_says_how_it_is(
    replicas: Sequence[Replica], desired: int, expected: tuple[str, str]
) -> None:
    assert told(observed(ROLLED_OUT, *replicas), desired) == expected


def test_what_shall_never_sleep_is_deploying_while_nothing_is_ready() -> None:
    kept = {1: (service(1, dependencies=("Back",), least=1), service(1, "Back"))}
    assert told(observed(ROLLED_OUT, services=kept))[0] == "deploying"
    sleeping = {1: (service(1, dependencies=("Back",)), service(1, "Back"))}
    assert told(observed(ROLLED_OUT, services=sleeping))[0] == "scaled-to-zero"


def test_each_service_that_is_needed_has_to_be_ready() -> None:
    services = {1: (service(1, dependencies=("Back",)), service(1, "Back"))}
    entry = at("a", READY)
    back = replace(at("b", STARTING, "it loads"), key=key(1, "Back"))
    desired = {key(1): 1, key(1, "Back"): 1}
    now = observed(ROLLED_OUT, entry, back, services=services)
    assert status_of(now, None, desired) == ("scaled-to-zero", "service 'Back': it loads")
    assert status_of(now, None, {key(1): 1})[0] == "running"
    only_back = observed(ROLLED_OUT, services=services)
    assert status_of(only_back, None, {key(1): 0, key(1, "Back"): 1}) == (
        "scaled-to-zero",
        "waking: 0 replicas starting",
    )
    failing = observed(ROLLED_OUT, entry, at("c", BACKOFF, "exited"), services=services)
    assert status_of(failing, None, desired)[0] == "scaled-to-zero", "another one serves"


def test_a_quota_is_said_where_it_takes_something_away() -> None:
    assert told(observed(ROLLED_OUT, allocations=SHORT)) == (
        "scaled-to-zero",
        "it waits: the quota of 1 GPU is used",
    )
    some = {key(1): Allocation(1, "the quota of 1 GPU is used")}
    assert told(observed(ROLLED_OUT, at("a", STARTING, "it loads"), allocations=some)) == (
        "scaled-to-zero",
        "service 'Echo': it loads",
    )
    pending = at("b", PENDING, "no room")
    assert told(observed(ROLLED_OUT, at("a", READY), pending, allocations=some)) == (
        "running",
        "1 replica ready; the quota of 1 GPU is used",
    )


def test_what_keeps_a_deployment_from_being_called_is_said_once_it_is_rolled_out() -> None:
    for of, status in ((ROLLED_OUT, "unhealthy"), (ROLLING_OUT, "deploying")):
        found = told(observed(of, at("a", READY), unserved="port 1 is taken"))
        assert found[0] == status
        assert ("it cannot be called: port 1 is taken" in found) is (status == "unhealthy")


def test_a_roll_out_that_has_ended_says_how() -> None:
    now = observed(ROLLING_OUT, at("a", READY))
    ready = RolloutVerdict(RolloutOutcome.READY, "")
    assert status_of(now, ready, {key(1): 1}) == ("running", "1 replica ready")
    broken = RolloutVerdict(RolloutOutcome.FAILED, "it is broken")
    status, sentence = status_of(now, broken, {key(1): 1})
    assert status == "failed"
    assert sentence.startswith("revision 1: it is broken; fix that and deploy again")
    unbuilt = replace(broken, unbuilt=True)
    assert status_of(now, unbuilt, {key(1): 1}) == ("image-build-failed", sentence)
    failed = replace(revision(2, RolloutOutcome.FAILED), reason="it was broken")
    status, sentence = told(observed(deployment(failed, revision(1)), at("a", READY)))
    assert (status, "revision 2: it was broken" in sentence) == ("failed", True)
    kept = replace(deployment(failed, revision(1)), status="image-build-failed")
    assert told(observed(kept, at("a", READY))) == ("image-build-failed", sentence)


@pytest.mark.parametrize("state", [READY, STARTING, BACKOFF])
def test_a_deployment_that_it_names_and_that_cannot_be_called_is_told_with_any_status(
    state: ReplicaState,
) -> None:
    sentence = "it calls the deployment 'b', which does not exist: deploy it"
    for of in (ROLLED_OUT, ROLLING_OUT):
        now = observed(of, at("a", state, "why"))
        status, reason = told(now)
        assert told(replace(now, uncallable=sentence)) == (status, f"{reason}; {sentence}")
