"""What the simulator says of a load test's arrivals, and how far off that was."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.observation import Observation, ObservedRun
from hotplate.platform.loadtest.predicting.prediction import begun_with, beside, learnt, predict


def detail(**changed: Any) -> dict[str, Any]:
    """As `/api/v1/hotplate/deployments/NAME` answers."""
    said = {
        "name": "embedder",
        "serving": 1,
        "labels": [],
        "config": {
            "services": {
                "Embedder": {
                    "scaling": {
                        "min_replicas": 0,
                        "max_replicas": 3,
                        "policy": {"scale_down_stabilization_window": 10},
                    }
                }
            }
        },
        "live": {
            "services": [{"revision": 1, "service": "Embedder", "concurrency": 2}],
            "replicas": [],
        },
        "learnt": {"Embedder": {"cold_starts_s": [4.0, 5.0, 6.0], "service_s": 0.5}},
    }
    return said | changed


def replicas(*states: str) -> dict[str, Any]:
    live = detail()["live"]
    return detail(live=live | {"replicas": [{"state": state} for state in states]})


def test_what_is_learnt_is_read_of_the_answer() -> None:
    known = learnt(replicas("ready", "ready", "draining", "stopping"))
    assert (known.cold_start_s, known.service_s, known.ready) == (5.0, 0.5, 2)
    policy = known.policy
    assert (policy.min_replicas, policy.max_replicas, policy.concurrency) == (0, 3, 2)
    assert policy.scale_down_window_s == 10


@pytest.mark.parametrize(
    ("starts_s", "expected_s"),
    [
        ([4.0], 4.0),
        ([1.0, 5.0], 3.0),
        ([30.0, 1.0, 2.0, 3.0], 2.5),
        ([0.1, 0.3, 0.3, 3.1, 3.1, 40.0, 0.2, 0.3], 1.0),
    ],
)
def test_the_length_of_a_cold_start_is_the_mean_without_the_extremes(
    starts_s: list[float], expected_s: float
) -> None:
    memory = {"Embedder": {"cold_starts_s": starts_s, "service_s": 0.5}}
    assert learnt(detail(learnt=memory)).cold_start_s == pytest.approx(expected_s)


def test_starts_take_what_they_took_lately_some_with_a_standby_and_some_without() -> None:
    memory = {"Embedder": {"cold_starts_s": [0.2, 4.0] * 10, "service_s": 0.5}}
    asleep_after_s = 100.0
    due_s = [number * asleep_after_s for number in range(20)]
    predicted = predict(learnt(detail(learnt=memory)), due_s, 20 * asleep_after_s)
    assert predicted["starts"] == 20
    assert predicted["wait_s"]["mean"] == pytest.approx(2.1)
    assert predicted["wait_s"]["p95"] == pytest.approx(4.0)


@pytest.mark.parametrize(("templates", "waits_s"), [(1, [0.4, 0.4, 0.4]), (0, [5.0, 5.0, 0.4])])
def test_starts_are_forked_where_there_is_a_template_and_cold_until_then(
    templates: int, waits_s: list[float]
) -> None:
    pool = {"pool": "a", "templates": templates, "making": 0, "refill_s": 8.0, "unforkable": ""}
    standby = {"settings": {"calm_s": 100.0, "unused_s": 1800.0}, "pools": [pool]}
    start = {"service": "Embedder", "pool": "a", "created_at": "2026-11-23T09:00:00", "phases": []}
    starts = [
        start | {"ready_at": "2026-11-23T09:00:00.400", "forked": True},
        start | {"ready_at": "2026-11-23T09:00:05", "forked": False},
    ]
    found = predict(learnt(detail(), (), starts, standby), [0.0, 100.0, 300.0], 300.0)
    assert (found["cold_start_s"], found["fork_s"], found["starts"]) == (5.0, 0.4, 3)
    assert found["wait_s"]["mean"] == pytest.approx(sum(waits_s) / 3, abs=1e-5)


def test_the_service_time_is_the_mean_of_the_last_requests() -> None:
    line = {"kind": "demand", "revision": 1, "service": "Embedder", "service_s": 0.2}
    log: list[dict[str, Any]] = [
        line | {"service_s": 9.0, "arrived": 1},
        line | {"arrived": 900},
        line | {"revision": 2, "service_s": 7.0, "arrived": 50},
        {"kind": "decision", "revision": 1, "service": "Embedder"},
        line | {"service_s": 0.0, "arrived": 70},
        line | {"service_s": 0.7, "arrived": 100},
    ]
    assert learnt(detail(), log).service_s == pytest.approx((900 * 0.2 + 100 * 0.7) / 1000)
    assert learnt(detail(), log[2:4]).service_s == 0.5
    unknown = {"Embedder": {"cold_starts_s": [4.0]}}
    assert learnt(detail(learnt=unknown), log).service_s > 0


def test_one_request_to_a_deployment_that_sleeps_waits_for_one_cold_start() -> None:
    found = predict(learnt(detail()), [1.0], 20.0)
    assert found["wait_s"]["mean"] == pytest.approx(5.0)
    assert found["starts"] == 1
    # It starts for 5 s, works for 0.5 s and is kept for 10 s.
    assert found["replica_s"] == {
        "busy": pytest.approx(0.5),
        "idle": pytest.approx(10.0, abs=0.3),
        "starting": pytest.approx(5.0),
    }


def test_replicas_that_are_there_serve_at_once_and_cost_from_the_beginning() -> None:
    found = predict(learnt(replicas("ready")), [1.0], 20.0)
    assert found["wait_s"]["mean"] == 0.0
    assert found["starts"] == 0
    assert found["replica_s"]["starting"] == 0.0
    assert sum(found["replica_s"].values()) == pytest.approx(11.5, abs=0.3)


def test_a_replica_that_is_never_stopped_costs_until_the_end() -> None:
    config = {"services": {"Embedder": {"scaling": {"min_replicas": 1}}}}
    found = predict(learnt(replicas("ready") | {"config": config}), [1.0], 20.0)
    assert sum(found["replica_s"].values()) == pytest.approx(20.0)
    longer = predict(learnt(replicas("ready") | {"config": config}), [1.0], 20.0, 30.0)
    assert sum(longer["replica_s"].values()) == pytest.approx(30.0)


def test_no_more_replicas_are_simulated_than_there_may_be() -> None:
    config = {"services": {"Embedder": {"scaling": {"max_replicas": 40}}}}
    known = learnt(detail(config=config))
    most = predict(known, [0.0] * 2000, 60.0)
    assert 20 < most["starts"] <= 40


def test_waits_go_on_behind_the_end_and_costs_do_not() -> None:
    found = predict(learnt(detail()), [0.0] * 40, 1.0, 2.0)
    assert sum(found["replica_s"].values()) == found["replica_s"]["starting"] <= 6.0
    assert found["wait_s"]["mean"] > 5.0


def test_replicas_with_gpus_cost_gpu_seconds() -> None:
    live = detail()["live"]
    (service,) = live["services"]
    known = learnt(detail(live=live | {"services": [service | {"gpus": 2.0}]}))
    found = predict(known, [1.0], 20.0)
    assert "replica_s" not in found and found["gpu_s"]["starting"] == pytest.approx(10.0)
    report: dict[str, Any] = {"gpu_s": {"busy": 16.0}, "latency_s": None, "cold_starts": []}
    (off, *_) = beside(found, report)["off"].items()
    assert off == ("gpu_s", pytest.approx(sum(found["gpu_s"].values()) / 16.0 - 1, abs=1e-3))


def test_a_run_begins_with_the_replicas_that_were_seen_first() -> None:
    known = learnt(replicas("ready", "ready"))
    seen = Observation(0.1, 0, 0, ready=0, starting=1, slots=0, gpus=0.0)
    assert begun_with(known, ObservedRun((seen,))).ready == 1
    assert begun_with(known, ObservedRun()).ready == 2


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"learnt": {}}, "has not shown yet how long a request takes"),
        (
            {"learnt": {"Embedder": {"service_s": 0.5, "cold_starts_s": []}}},
            "has not shown yet how long its replicas take to start",
        ),
        (
            {"learnt": {"Embedder": {"service_s": 0.5, "cold_starts_s": ["soon"]}}},
            "what was learnt cannot be used",
        ),
        ({"labels": [{"key": "autoscaling/enabled", "value": "true"}]}, "by queries"),
        (
            {"labels": [{"key": "hotplate/schedule", "value": "0 8 * * mon-fri=2"}]},
            "has a schedule",
        ),
        ({"live": {"services": [], "replicas": []}}, "has 0 services that answer"),
        ({"serving": None}, "has 0 services that answer"),
    ],
)
def test_what_cannot_be_predicted_is_a_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence) as refused:
        learnt(detail(**changed))
    assert str(refused.value).startswith("--predict: embedder")


def test_without_arrivals_there_is_nothing_to_simulate() -> None:
    with pytest.raises(BadSetting, match="give --rate or --trace"):
        predict(learnt(detail()), [], 10.0)


def test_the_report_says_how_far_off_it_was() -> None:
    prediction = predict(learnt(detail()), [1.0], 20.0)
    report: dict[str, Any] = {
        "replica_s": {"busy": 1.0, "idle": 9.0, "starting": 6.0},
        "latency_s": {"mean": 6.5},
        "cold_starts": [{}],
    }
    found = beside(prediction, report)
    assert found["measured"] == {"replica_s": 16.0, "wait_s": 6.0, "starts": 1}
    predicted_s = sum(prediction["replica_s"].values())
    assert found["off"] == {
        "replica_s": pytest.approx(predicted_s / 16.0 - 1, abs=1e-3),
        "wait": pytest.approx(5 / 6 - 1, abs=1e-3),
        "wait_s": pytest.approx(-1.0),
    }
    nothing = beside(prediction, report | {"replica_s": None, "latency_s": None})
    assert nothing["off"] == {"replica_s": None, "wait": None, "wait_s": None}
