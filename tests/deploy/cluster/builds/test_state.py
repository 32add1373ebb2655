"""How a build stands by what the cluster says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.deploy.cluster.builds.spec import BuildEnd, BuildSettings
from hotplate.deploy.cluster.builds.state import JobState, state_of

SETTINGS = BuildSettings(timeout_s=1800, memory_bytes=1 << 30, disk_bytes=10 << 30)
SCHEDULED = {"type": "PodScheduled", "status": "True"}
JOB: dict[str, Any] = {"metadata": {"uid": "job"}, "status": {}}


def job(*conditions: tuple[str, str]) -> dict[str, Any]:
    found = [{"type": kind, "status": "True", "reason": why} for kind, why in conditions]
    return {**JOB, "status": {"conditions": found}}


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    containers = [] if state is None else [{"name": "build", "image": "i:1", "state": state}]
    about = {"conditions": [SCHEDULED], "containerStatuses": containers, **status}
    return {"metadata": {"uid": "pod"}, "status": about}


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message, "reason": reason}}


def look(job: dict[str, Any], pod: dict[str, Any] | None, *warnings: str) -> JobState:
    told = [{"type": "Warning", "message": message} for message in warnings]
    return state_of(job, pod, told, SETTINGS)


SAID = json.dumps({"sentence": "No package index has colour.", "retry": True, "no_room": False})
FAILED = job(("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded"))
LOST = job(("FailureTarget", "BackoffLimitExceeded"))
LATE = job(("FailureTarget", "DeadlineExceeded"))
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes: no cpu"}]
OUT_OF_OWN_DISK = 'Usage of EmptyDir volume "env" exceeds the limit "5Gi".'
OUT_OF_NODES_DISK = "The node was low on resource: ephemeral-storage."
END = BuildEnd


@pytest.mark.parametrize(
    ("at", "by", "end", "sentence"),
    [
        (JOB, pod(ended(0)), END.DONE, ""),
        (job(("Complete", "")), None, END.DONE, ""),
        (JOB, pod(ended(1, SAID)), END.FAILED, "No package index has colour."),
        (LATE, pod(ended(1, SAID)), END.FAILED, "No package index has colour."),
        (LATE, pod(ended(143)), END.FAILED, "took longer than 1800 s (build_timeout_s)"),
        (LATE, None, END.FAILED, "did not begin within 1800 s (build_timeout_s): It waits for"),
        (LATE, pod(conditions=UNSCHEDULED), END.FAILED, "No node takes it: 0/2 nodes: no cpu."),
        (FAILED, pod(ended(137, reason="OOMKilled")), END.FAILED, "more than the 1024 MiB"),
        (JOB, pod(ended(128, "no python3.11", "StartError")), END.FAILED, "no python3.11"),
        (JOB, pod(ended(1)), END.FAILED, "exit status 1 and said nothing"),
        (JOB, pod(reason="Evicted", message=OUT_OF_OWN_DISK), END.FAILED, "10240 MiB"),
        (JOB, pod(reason="Evicted", message=OUT_OF_NODES_DISK), END.KILLED, "low on resource"),
        (FAILED, pod(ended(143)), END.KILLED, "Its pod was killed."),
        (FAILED, pod(ended(137)), END.KILLED, "Its pod was killed."),
        (FAILED, None, END.KILLED, "Its pod was killed."),
        (LOST, pod({"running": {}}), END.KILLED, "Its pod was killed."),
        (FAILED, pod(message="Node is shutting down"), END.KILLED, "Node is shutting down"),
    ],
)
def test_how_it_ended(at: Any, by: Any, end: BuildEnd, sentence: str) -> None:
    outcome = look(at, by).outcome
    assert outcome is not None
    assert outcome.end is end
    assert sentence in outcome.sentence


def test_what_its_program_says_of_another_try_counts() -> None:
    outcome = look(JOB, pod(ended(1, SAID))).outcome
    assert outcome is not None and outcome.retry and not outcome.no_room
    full = json.dumps({"sentence": "The disk is full.", "retry": True, "no_room": True})
    outcome = look(JOB, pod(ended(1, full))).outcome
    assert outcome is not None and outcome.no_room


@pytest.mark.parametrize("code", [137, 143])
def test_who_has_killed_its_program_says_its_job(code: int) -> None:
    """Its deadline perhaps, which the watch of pods does not tell."""
    assert look(JOB, pod(ended(code))).outcome is None


@pytest.mark.parametrize(
    ("by", "warnings", "reason"),
    [
        (None, [], "It waits for the scheduler."),
        (None, ["exceeded quota: builds"], "The cluster makes no pod: exceeded quota: builds"),
        (pod(conditions=[]), [], "It waits for the scheduler."),
        (pod(conditions=UNSCHEDULED), [], "No node takes it: 0/2 nodes: no cpu"),
        (pod(), [], "Its node prepares it."),
        (pod(), ["the ticket was not signed"], "the ticket was not signed"),
        (
            pod({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}),
            [],
            "The image i:1 is not there: not found",
        ),
        (
            pod({"waiting": {"reason": "CreateContainerError", "message": "bad"}}),
            [],
            "Its container cannot be made: bad",
        ),
        (pod({"running": {}}), ["an old warning"], ""),
    ],
)
def test_what_it_waits_for(by: Any, warnings: list[str], reason: str) -> None:
    state = look(JOB, by, *warnings)
    assert (state.waits_for, state.outcome) == (reason, None)
    assert state.prints == (reason == "")


def test_one_whose_pod_was_deleted_ends_first() -> None:
    ending = pod({"running": {}})
    ending["metadata"]["deletionTimestamp"] = "now"
    state = look(JOB, ending)
    assert state.waits_for == "Its pod was deleted, and ends."
    assert state.outcome is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["sentence", "retry", "no_room"]), below, max_size=3)
    ),
    max_leaves=5,
)


@given(JSON.map(json.dumps) | st.text(max_size=40), st.integers(1, 255))
def test_whatever_its_program_leaves_it_has_failed_or_was_killed(message: str, code: int) -> None:
    outcome = look(FAILED, pod(ended(code, message))).outcome
    assert outcome is not None and outcome.end is not BuildEnd.DONE
    assert outcome.sentence
